"""`walktalk certs`: a test authority and a certificate for every node of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def certs(
    config: Annotated[Path, typer.Option(help="The cluster's YAML file; its nodes get certificates.")],
    out: Annotated[Path | None, typer.Option(help="Folder; the cluster's `certificates` if left out.")] = None,
    days: Annotated[int, typer.Option(min=1, help="How long they are valid.")] = 365,
) -> None:
    """Make certificates for mutual TLS: for tests and small deployments, not a substitute for an authority."""
    from walktalk.errors import SpecError
    from walktalk.runtimes.peers import load_cluster, make_certificates

    cluster = load_cluster(config)
    folder = out if out is not None else cluster.certificates
    if folder is None:
        raise SpecError("certificates: the cluster names no folder; add `certificates: certs` to it or give --out")
    hosts = {name: [place.host] for name, place in cluster.nodes.items()}
    if cluster.relay:
        hosts["relay"] = [cluster.relay.rpartition(":")[0].strip("[]")]
    for path in make_certificates(folder, hosts, days):
        typer.echo(str(path))
