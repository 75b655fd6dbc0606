"""`walktalk kit`: what each site of a cluster gets in one archive: make it, open it, say whether it is still good."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from walktalk.runtimes.peers import Cluster, KitFinding

kit_app = typer.Typer(invoke_without_command=True, no_args_is_help=True)

NOT_WELL = 1  # exit code: something is stale, changed or at its end
DAYS = 90


@kit_app.callback()
def kit(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="The cluster's YAML file.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the archives.")] = Path("kits"),
    days: Annotated[int, typer.Option(min=1, help="Days for which these kits are good.")] = DAYS,
    requests: Annotated[
        list[Path] | None,
        typer.Option(
            "--sign",
            metavar="FILE",
            help="A site's request for a certificate, NAME.csr, or a folder of such: sign it, and put the certificate "
            "into its kit. Repeatable.",
        ),
    ] = None,
    valid: Annotated[int, typer.Option(min=1, help="With --sign: days for which certificates are valid.")] = 365,
    anew: Annotated[bool, typer.Option("--new", help="Make a new edition even where nothing has changed.")] = False,
) -> None:
    """Where the authority's key is: write one archive for each site of a cluster, signed by the authority.

    It holds the site's part of the cluster's file with the study in it, the authority's certificate, a systemd unit, a
    compose file, and a README with the three commands of that site. Its key is made at the site and never travels. Once
    the request that comes back was signed (--sign), the archive has the certificate, too. Each change of the cluster's
    file makes a new edition, whose number a node shows to its neighbours.
    """
    from walktalk.core.errors import SpecError

    if context.invoked_subcommand is not None:
        if config is not None:
            raise SpecError(f"options go after the command: walktalk kit {context.invoked_subcommand} …")
        return
    if config is None:
        raise SpecError("--config is missing: the cluster's YAML file; see `walktalk kit --help`")
    _make(config, out, days, _files_of(requests or ()), valid, anew)


def _make(config: Path, out: Path, days: int, requests: list[Path], valid: int, anew: bool) -> None:
    from walktalk.runtimes.peers import (
        OPERATOR,
        describe_certificates,
        make_authority,
        make_certificate,
        make_kits,
        sign_request,
    )

    cluster, folder = _with_certificates(config)
    _check_study(cluster)
    authority = make_authority(folder, valid)
    if not (folder / f"{OPERATOR}.pem").exists():
        typer.echo(f"{make_certificate(authority, OPERATOR, (), valid)}   the operator's, for status, collect and stop")
    for path in requests:
        key = next(line for line in describe_certificates(path) if line.startswith("key"))
        signed = sign_request(authority, path, cluster.hosts(), valid)
        typer.echo(f"{signed}   signed; let the site read its key's fingerprint to you by telephone:")
        typer.echo(f"    {key.split()[-1]}")
    made = make_kits(cluster, authority, out, days, anew)
    edition = made.edition
    typer.echo(f"{edition.words}, good until {edition.ends}{'' if made.is_new else '; nothing has changed since'}")
    for name, path in made.archives.items():
        ready = (folder / f"{name}.pem").exists()
        typer.echo(f"{path}   {'with its certificate' if ready else 'to be opened at the site, which sends a request'}")
    typer.echo(f"authority      {authority_fingerprint(folder)}")
    typer.echo("send each site its archive, and compare this fingerprint by telephone")


def authority_fingerprint(folder: Path) -> str:
    """The fingerprint of the authority's certificate in a folder."""
    from walktalk.runtimes.peers import describe_certificates

    line = next(line for line in describe_certificates(folder / "ca.pem") if line.startswith("fingerprint"))
    return line.removeprefix("fingerprint").strip()


def _files_of(given: list[Path] | tuple[()]) -> list[Path]:
    """Requests, of files and of folders that hold some."""
    from walktalk.core.errors import UnavailableError

    found: list[Path] = []
    for path in given:
        inside = sorted(path.glob("*.csr")) if path.is_dir() else [path]
        if not inside:
            raise UnavailableError(f"--sign {path}: there is no request in this folder; sites send NAME.csr")
        found += inside
    return found


def _with_certificates(config: Path) -> tuple[Cluster, Path]:
    from walktalk.core.errors import SpecError
    from walktalk.runtimes.peers import load_cluster

    cluster = load_cluster(config)
    if cluster.certificates is None:
        raise SpecError(
            "certificates: a kit is signed by the cluster's authority; add `certificates: certs` to the file"
        )
    return cluster, cluster.certificates


def _check_study(cluster: Cluster) -> None:
    """A mistake in the study shows here, not at every site; its task need not be installed where kits are made."""
    from walktalk.core.plugins import plugins_may_be_absent
    from walktalk.runtimes.peers import study_of
    from walktalk.studies import load_spec, make_spec
    from walktalk.studies.planning import build_graph

    with plugins_may_be_absent():
        study = study_of(cluster)
        spec = make_spec(study) if isinstance(study, dict) else load_spec(study)
    cluster.roster(build_graph(spec))


@kit_app.command("open")
def open_(
    archive: Annotated[Path, typer.Argument(help="What the operator has sent: CLUSTER-NAME.tar.gz.")],
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to; a folder of the kit's name here, if left out.")
    ] = None,
    older: Annotated[
        bool, typer.Option("--older", help="Take a kit that is older than the one that is there.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--doctor/--no-doctor", help="With a certificate: look whether all will work here.")
    ] = True,
) -> None:
    """At a site: check a kit, unpack it, make a key and a request for a certificate; or bring the folder up to date.

    Of a folder that is there only what changed is replaced. Its key, its certificate and the node's records stay.
    """
    from walktalk.runtimes.peers import open_kit

    found = open_kit(archive, to, older)
    edition, folder = found.manifest.edition, found.folder
    since = "" if found.before is None else f"; it was {found.before.words}"
    typer.echo(f"{folder}   {edition.words}, good until {edition.ends}{since}")
    for name in found.changed:
        typer.echo(f"  {name}")
    for name in found.removed:
        typer.echo(f"  {name} is gone")
    if not (found.changed or found.removed):
        typer.echo("  nothing has changed")
    if found.before is None:
        typer.echo(f"authority      {found.fingerprint}   compare it with the operator by telephone")
    name = found.manifest.name
    run = f"walktalk relay --config {folder / 'cluster.yaml'}"
    run = run if name == "relay" else f"walktalk node --config {folder / 'cluster.yaml'} --name {name}"
    if found.request is not None:
        from walktalk.runtimes.peers import describe_certificates

        key = next(line for line in describe_certificates(found.request) if line.startswith("key"))
        typer.echo(f"{found.request}   send it to the operator: it holds no secret; then open the kit that comes back")
        typer.echo(f"its key        {key.split()[-1]}   read it to the operator")
        return
    if check and name != "relay":
        from walktalk.cli.machine import doctor

        typer.echo(f"looks whether all will work here; then start it: {run}\n")
        doctor(config=folder / "cluster.yaml", name=name, compare=None)
        return
    typer.echo(f"start it: {run}")


@kit_app.command("check")
def check(
    paths: Annotated[list[Path], typer.Argument(metavar="KIT…", help="Archives, or folders that some were opened in.")],
    config: Annotated[
        Path | None,
        typer.Option(help="Where the authority is: the cluster's YAML file, to see whether it has changed."),
    ] = None,
) -> None:
    """Say what of a kit is stale, changed or at its end; exit code 1 where something is."""
    from walktalk.runtimes.peers import check_kit

    well = True
    for path in paths:
        typer.echo(f"{path}")
        for finding in [*check_kit(path), *_stale(path, config)]:
            well = well and finding.is_well
            typer.echo(f"  {'✓' if finding.is_well else '✗'} {finding.about:12} {finding.said}")
            if finding.remedy:
                typer.echo(f"{'':17}→ {finding.remedy}")
    if not well:
        raise typer.Exit(NOT_WELL)


def _stale(path: Path, config: Path | None) -> list[KitFinding]:
    if config is None:
        return []
    from walktalk.runtimes.peers import KitFinding, is_stale, manifest_in, open_authority

    cluster, folder = _with_certificates(config)
    if is_stale(manifest_in(path).edition, cluster, open_authority(folder)):
        again = f"walktalk kit --config {config}"
        return [KitFinding(False, "stale", f"{config} or its study has changed since", again)]
    return [KitFinding(True, "up to date", f"as {config} is now")]
