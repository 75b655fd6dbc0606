"""`walktalk certs`: who may join a cluster: make certificates, ask for them, sign, renew, revoke, look at them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walktalk.cli.options import Without

if TYPE_CHECKING:
    from contextlib import ExitStack

    from walktalk.runtimes.peers import Cluster, OperatorConnection

certs_app = typer.Typer(invoke_without_command=True, no_args_is_help=True)

Config = Annotated[Path, typer.Option(help="The cluster's YAML file.")]
Days = Annotated[int, typer.Option(min=1, help="Days for which a certificate is valid.")]
Out = Annotated[Path | None, typer.Option(help="Folder of the certificates; the cluster's `certificates` if left out.")]
Together = Annotated[
    bool, typer.Option("--together", help="Let certificates end on the same day. Else nodes' ends are spread.")
]
NAMES = "one of the cluster's nodes, `operator`, or `relay`"


@certs_app.callback()
def certs(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="The cluster's YAML file; its nodes get certificates.")] = None,
    out: Out = None,
    days: Days = 365,
    renew: Annotated[
        bool,
        typer.Option("--renew", help="Make new certificates even if the present ones are valid for a month or more."),
    ] = False,
    together: Together = False,
) -> None:
    """Make certificates for mutual TLS: an authority, and a key and a certificate for everybody in the cluster.

    All keys are then made in one place: for tests and small deployments. For keys that never leave their site, see
    `walktalk certs request --help` and `walktalk certs sign --help`. Files that lie in a running node's folder are used
    without a restart.
    """
    from walktalk.core.errors import SpecError

    if context.invoked_subcommand is not None:
        if config is not None or out is not None:
            raise SpecError(f"options go after the command: walktalk certs {context.invoked_subcommand} --config …")
        return
    if config is None:
        raise SpecError("--config is missing: the cluster's YAML file; see `walktalk certs --help`")
    _make_all(config, out, days, renew, together)


def _make_all(config: Path, out: Path | None, days: int, renew: bool, together: bool) -> None:
    from walktalk.runtimes.peers import lifetimes, make_authority, make_certificate, why_kept

    cluster, folder = _cluster_and_folder(config, out)
    fresh = not (folder / "ca.pem").exists()
    authority = make_authority(folder, days)
    typer.echo(f"{folder / 'ca.pem'}{'' if fresh else '   as before'}")
    spread = {} if together else lifetimes(cluster.hosts(), days)
    for name, addresses in cluster.hosts().items():
        why = "" if fresh else why_kept(folder, name, renew)
        path = folder / f"{name}.pem"
        typer.echo(
            f"{path}   {why}" if why else str(make_certificate(authority, name, addresses, spread.get(name, days)))
        )


@certs_app.command()
def request(
    name: Annotated[str, typer.Argument(help=f"Who asks for a certificate: {NAMES}.")],
    config: Config,
    out: Out = None,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Make another key, for example because the old one may have been stolen.")
    ] = False,
) -> None:
    """At a site: make a key, which stays there, and a request for a certificate, which goes to the authority.

    To renew a certificate is the same: the key of before is used again. The running node goes on with what it has, and
    takes the new certificate as soon as it lies in its folder.
    """
    from walktalk.runtimes.peers import check_name, request_certificate

    cluster, folder = _cluster_and_folder(config, out)
    joins = name not in cluster.hosts()  # one that joins need not be in the file
    if joins:
        check_name(name, "")
    path, key = request_certificate(folder, name, new_key)
    typer.echo(f"{key}   the key: it stays here")
    typer.echo(f"{path}   the request: send it to the authority, where it is signed:")
    typer.echo(f"    walktalk certs sign {name}.csr --config {config.name}{' --joins' if joins else ''}")
    if joins:
        typer.echo("    with --host and its host name or address, if others shall connect to it there")
    typer.echo(f"then put the {name}.pem that comes back, and ca.pem, into {folder}")


@certs_app.command()
def sign(
    file: Annotated[Path, typer.Argument(metavar="REQUEST", help="The file of `walktalk certs request`, NAME.csr.")],
    config: Config,
    out: Out = None,
    days: Days = 365,
    joins: Annotated[
        bool, typer.Option("--joins", help="Allow a name that is not in the cluster file, for a node that will join.")
    ] = False,
    host: Annotated[
        list[str] | None, typer.Option(help="Another host name or address for which it is valid. Repeatable.")
    ] = None,
    together: Together = False,
) -> None:
    """Where the authority's key is: make a certificate of a site's request.

    See who has sent it: the certificate lets its holder speak for the node of that name. The name must be in the
    cluster; of what the request says nothing else is taken over, and the addresses are those of the cluster's file.
    """
    from walktalk.runtimes.peers import make_authority, sign_request, valid_until

    cluster, folder = _cluster_and_folder(config, out)
    path = sign_request(make_authority(folder, days), file, cluster.hosts(), days, joins, host or (), together)
    typer.echo(f"{path}   valid until {valid_until(path):%Y-%m-%d}")
    typer.echo(f"send it, and {folder / 'ca.pem'}, back to the site; both may be seen by anybody")


@certs_app.command("list")
def list_(config: Config, out: Out = None) -> None:
    """Whose certificates lie here, until when each is valid, and which hold no more; exit code 1 where one does not."""
    from rich.console import Console
    from rich.table import Table

    from walktalk.runtimes.peers import certificate_rows

    _, folder = _cluster_and_folder(config, out)
    rows = certificate_rows(folder)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("made out to", "valid until", "state", "key", "serial number"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*row[:-1])
    Console().print(table)
    if not rows:
        typer.echo(f"none in {folder}; make them: walktalk certs --config {config}", err=True)
    if not rows or any(not row[-1] for row in rows):
        raise typer.Exit(1)


@certs_app.command()
def show(
    file: Annotated[
        Path, typer.Argument(help="A certificate, a request, or a list of revoked ones: NAME.pem, NAME.csr.")
    ],
) -> None:
    """All that a file says: whose it is, where it is good, until when, and fingerprints to compare by telephone."""
    from walktalk.runtimes.peers import describe_certificates

    for line in describe_certificates(file):
        typer.echo(line)


@certs_app.command()
def revoke(
    name: Annotated[str, typer.Argument(help=f"Whose certificates to revoke: {NAMES}, or a node that joined.")],
    config: Config,
    out: Out = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="Seconds to spend telling the nodes; 0 tells none.")] = 5.0,
    without: Without = None,
) -> None:
    """Where the authority's key is: revoke all certificates of a name, and tell the nodes that run.

    The list, `revoked.pem`, is signed by the authority. A node that is not reached now takes it when the file is put
    beside its certificate; none needs a restart. A site whose key was lost asks for another certificate with
    `walktalk certs request NAME --new-key`.
    """
    from contextlib import ExitStack

    from walktalk.core.errors import UserError
    from walktalk.runtimes.peers import REVOKED, OperatorConnection, open_authority, revoke_certificates

    cluster, folder = _cluster_and_folder(config, out)
    authority, why = open_authority(folder), ""
    with ExitStack() as stack:
        operator = None
        try:  # connected before the list is there: the operator's own certificate may be what is revoked
            operator = stack.enter_context(OperatorConnection(cluster.without(without or ()))) if seconds else None
        except UserError as error:  # e.g. there is no operator's certificate here
            why = str(error)
        path, gone = revoke_certificates(authority, name)  # before anybody says a word: nothing can come between
        for line in gone:
            typer.echo(f"revoked {line}")
        typer.echo(f"{path}   the list")
        try:
            for caller, names in _everybody(operator, seconds, stack) if operator is not None else ():
                _print_told(caller.ask(names, REVOKED, seconds, said=path.read_text()))
        except UserError as error:
            why = str(error)
    if cluster.relay:
        typer.echo("relay: copy the list into its folder of certificates; it takes it without a restart")
    if why:
        typer.echo(f"nobody was told: {why}; copy the list into the others' folders of certificates", err=True)


def _everybody(
    caller: OperatorConnection, seconds: float, stack: ExitStack
) -> list[tuple[OperatorConnection, list[str]]]:
    """Connections to those of the file and to those who joined, and whom to ask on which; the stack closes them."""
    from walktalk.runtimes.peers import OperatorConnection, Standing, known_roster

    cluster = caller.cluster
    roster = known_roster(cluster, caller, seconds)
    if roster is None:
        return [(caller, list(cluster.nodes))]
    found = [(caller, [name for name in cluster.nodes if roster.standing(name) is not Standing.LEFT])]
    there = cluster.with_joined(roster.entries.values())
    if there.joined:
        joined = there.model_copy(update={"nodes": {name: there.nodes[name] for name in there.joined}})
        found.append((stack.enter_context(OperatorConnection(joined)), list(there.joined)))
    return found


def _print_told(answers: dict[str, dict[str, Any] | None]) -> None:
    for name, answer in answers.items():
        said = "does not answer: copy the list into its folder of certificates"
        if answer is not None:
            wrong = answer.get("complaints")
            said = (
                wrong[0]
                if wrong
                else answer.get("why") or ("has taken it" if answer.get("taken") else "has it already")
            )
        typer.echo(f"{name}: {said}")


def _cluster_and_folder(config: Path, out: Path | None) -> tuple[Cluster, Path]:
    from walktalk.core.errors import SpecError
    from walktalk.runtimes.peers import load_cluster

    cluster = load_cluster(config)
    folder = out if out is not None else cluster.certificates
    if folder is None:
        raise SpecError("certificates: the cluster names no folder; add `certificates: certs` to it or give --out")
    return cluster, folder
