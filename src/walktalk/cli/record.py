"""`walktalk record`: the signed record of who trained what, and whether it is what the sites have signed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from walktalk.runtimes.peers import Checked, Site

record_app = typer.Typer(no_args_is_help=True)

COLUMNS = ("site", "state", "trained", "samples", "from", "to", "sent", "MB", "signed")  # sent: models


@record_app.callback()
def record() -> None:
    """Who has trained what, and what has left whom: a file that every site can check."""


@record_app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="The record: `record.json` in the folder of `walktalk collect`.")],
    config: Annotated[Path | None, typer.Option(help="The cluster's YAML file, whose authority counts.")] = None,
    authority: Annotated[
        Path | None, typer.Option(help="The authority's certificate, `ca.pem`, in place of the cluster's.")
    ] = None,
    sent: Annotated[bool, typer.Option("--sent", help="Also which models went to whom, and when.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that every site has signed what the record says of it; exit code 1 where something is wrong, by name.

    Nobody is asked: the authority's certificate is enough. Altered statements, missing signatures, wrong keys and
    models that came and that nobody says it has sent are named.
    """
    import json

    from walktalk.runtimes.peers import authority_in_words, check_record, read_record

    found, revoked = _whose_word_counts(config, authority)
    content = read_record(file)
    checked = check_record(content, found, revoked)
    if json_:
        sites = {site.name: {"problems": list(site.problems), "statement": site.said} for site in checked.sites}
        typer.echo(json.dumps({"complaints": checked.complaints, "sites": sites, "result": content.get("result")}))
    else:
        _print(checked, content)
        if sent:
            _print_sent(checked)
        typer.echo(f"Checked with {found}, fingerprint {authority_in_words(found)}")
        for line in checked.complaints:
            typer.echo(line, err=True)
        if not checked.complaints:
            typer.echo(f"All {len(checked.sites)} sites have signed what stands here.")
    if checked.complaints:
        raise typer.Exit(1)


def _whose_word_counts(config: Path | None, authority: Path | None) -> tuple[Path, Any]:
    """The authority's certificate, and which certificates hold no more, where that is known."""
    from walktalk.core.errors import SpecError
    from walktalk.runtimes.peers import load_cluster, revocations_beside

    if authority is None:
        if config is None:
            raise SpecError("whose word counts? Give --config CLUSTER.yaml, or --authority ca.pem")
        folder = load_cluster(config).certificates
        if folder is None:
            raise SpecError("certificates: the cluster has none, so nothing in its record is signed")
        authority = folder / "ca.pem"
    if not authority.is_file():
        raise SpecError(f"--authority: {authority} does not exist; each site has it as ca.pem beside its certificate")
    return authority, revocations_beside(authority)


def _print(checked: Checked, record: dict[str, Any]) -> None:
    """A table of the sites, and what came of the run."""
    from rich.console import Console
    from rich.table import Table

    from walktalk.core.untrusted import shown

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in COLUMNS[2:4] + COLUMNS[6:8] else "left", no_wrap=True)
    for site in checked.sites:
        table.add_row(*_row(site))
    Console().print(table)
    result = record.get("result")
    if isinstance(result, dict):
        typer.echo(f"The run is {shown(result.get('state'))}; the model is {shown(result.get('copy'))}.")
        typer.echo(f"Its SHA-256 is {shown(result.get('model_sha256'))}.")


def _row(site: Site) -> list[str]:
    from walktalk.core.untrusted import shown

    if not site.said:
        return [site.name, *[""] * (len(COLUMNS) - 2), "no"]
    flows = [flow for peer, flow in site.flows("sent").items()]
    models, size = (sum(one for flow in flows if type(one := flow.get(key)) is int) for key in ("models", "bytes"))
    moments = [site.moment(first=True)[:10], site.moment(first=False)[:10] if site.said.get("state") != "runs" else ""]
    counts = [f"{site.number('iterations'):,}", f"{site.number('samples'):,}"]
    verdict = "no" if site.problems else "yes"
    return [
        site.name,
        shown(site.said.get("state"), 10),
        *counts,
        *moments,
        f"{models:,}",
        f"{size / 1e6:,.1f}",
        verdict,
    ]


def _print_sent(checked: Checked) -> None:
    """Which models went to whom, from when to when."""
    from walktalk.core.untrusted import shown

    for site in checked.sites:
        for peer, flow in sorted(site.flows("sent").items()):
            if models := site.models("sent", peer):
                size, moments = flow.get("bytes"), [shown(flow.get(key, ""), 25) for key in ("first", "last")]
                mega = f"{size / 1e6:,.1f} MB" if type(size) is int else "?"
                typer.echo(f"{site.name} to {shown(peer, 63)}: {models:,} models, {mega}, {' to '.join(moments)}")
