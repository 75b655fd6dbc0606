"""`walktalk status`: who is alive, who aggregates, where the walks are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walktalk.cli.live import check_live

if TYPE_CHECKING:
    from walktalk.runtimes.peers import Cluster

NOBODY = 1  # exit code, as that of `walktalk stop`
SECONDS_BETWEEN_QUESTIONS = 2.0


def status(
    config: Annotated[Path, typer.Option(help="The cluster's YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to wait for answers.")] = 3.0,
    live: Annotated[bool, typer.Option("--live", help="Show the cluster in a browser, until Ctrl-C.")] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="With --live: where to listen; a free port if left out.")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="With --live: the address to listen on, 0.0.0.0 for all; this machine alone if left out."),
    ] = None,
) -> None:
    """Ask every node of a cluster how it is."""
    from walktalk.runtimes.peers import STATUS, ask_everyone, load_cluster

    check_live(live, port, host)
    cluster = load_cluster(config)
    if live:
        watch(cluster, seconds, host, port or 0)
        return
    answers = ask_everyone(cluster, STATUS, seconds)
    nobody = not any(answers.values())
    sites = {name: place.site for name, place in cluster.nodes.items()}
    if as_json:
        typer.echo(json.dumps({name: a if a is None else {**a, "site": sites[name]} for name, a in answers.items()}))
    else:
        _print(answers, sites)
    for line in certificate_lines(answers):
        typer.echo(line, err=as_json)
    if nobody:
        typer.echo(f"nobody answers; {_what_to_do(cluster, config)}", err=True)
        raise typer.Exit(NOBODY)


def certificate_lines(answers: dict[str, dict[str, Any] | None]) -> list[str]:
    """Of nodes whose certificates end soon, have ended or were revoked."""
    papers = {name: answer.get("certificate") for name, answer in answers.items() if answer is not None}
    return [f"{name}: {one['said']}" for name, one in papers.items() if one is not None and one["said"]]


def _what_to_do(cluster: Cluster, config: Path) -> str:
    """Whether they have been there, as far as can be seen from here."""
    first = next(iter(cluster.nodes))
    if any((cluster.folder / name).is_dir() for name in cluster.nodes):
        return (
            "if the run is over, collect what the nodes have left: "
            f"walktalk collect --config {config} --out out/{cluster.name}"
        )
    return (
        f"start the nodes, each on its machine: walktalk node --config {config} --name {first}; if they are running, "
        f"find out why they cannot be reached: walktalk doctor --config {config}"
    )


def watch(cluster: Cluster, seconds: float, host: str | None, port: int) -> None:
    """Ask again and again, and show the answers in a browser; Ctrl-C ends it."""
    import time

    from walktalk.report import ClusterPage, served_cluster
    from walktalk.runtimes.peers import STATUS, ask_everyone
    from walktalk.studies import load_spec, make_spec

    spec = make_spec(cluster.study) if isinstance(cluster.study, dict) else load_spec(cluster.study)
    sites = {name: place.site for name, place in cluster.nodes.items()}
    page = ClusterPage(cluster.name, cluster.folder, sites, spec, cluster.algorithm)
    with served_cluster(page, host=host, port=port) as (url, take):
        typer.echo(f"Live     {url}   (Ctrl-C ends it)", err=True)
        began = time.monotonic()
        while True:
            asked = time.monotonic()
            answers = ask_everyone(cluster, STATUS, seconds)
            take(dict(answers), asked - began)
            time.sleep(max(0.0, SECONDS_BETWEEN_QUESTIONS - (time.monotonic() - asked)))


def _print(answers: dict[str, dict[str, Any] | None], sites: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    there = {name: a for name, a in answers.items() if a is not None}
    located, dropped = any(sites.values()), any(any(a["dropped"].values()) for a in there.values())
    table = Table(box=None, pad_edge=False, header_style="bold")  # without lines, and empty columns, it fits 80 letters
    for column in ("node", *(["site"] if located else []), "state", "aggregates", "walks"):
        table.add_column(column)
    for column in ("peers", "iterations", "loss", "sent MB", *(["dropped"] if dropped else [])):
        table.add_column(column, justify="right")
    for name, answer in answers.items():
        first = (name, sites[name]) if located else (name,)
        row = _row(answer) if answer is not None else ["no answer"]
        table.add_row(*first, *(row[: len(table.columns) - len(first)]))
    console = Console()
    console.print(table)
    console.print(f"\n{len(there)} of {len(answers)} nodes answer{_aggregators(there)}", highlight=False)


def _row(answer: dict[str, Any]) -> list[str]:
    return [
        answer["state"],
        f"term {answer['term']}" if answer["aggregates"] else "",
        " ".join(map(str, answer["walks"])),
        str(len(answer["alive"])),
        f"{answer['iterations']:,}",
        "" if answer["loss"] is None else f"{answer['loss']:.3f}",
        f"{answer['bytes_sent'] / 1e6:,.1f}",
        str(sum(answer["dropped"].values())),
    ]


def _aggregators(there: dict[str, dict[str, Any]]) -> str:
    """Who aggregates; more than one while the network is split, or an election is not known to all yet."""
    names = [name for name, answer in there.items() if answer["aggregates"]]
    return f"; aggregator: {', '.join(names)}" if names else ""
