"""`walktalk relay`: where nodes meet that can only dial out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from walktalk.runtimes.peers import Relay


def relay(
    config: Annotated[Path, typer.Option(help="The cluster's YAML file, as on every machine; it names the relay.")],
    listen: Annotated[
        str, typer.Option(help="host:port to listen on; all addresses and the port of the file's `relay` if left out.")
    ] = "",
) -> None:
    """Pass on what nodes behind NAT or firewalls say to each other; Ctrl-C or SIGTERM ends it.

    It needs a machine that all of them can dial, and nothing of the study: no data, no torch, no folder. In the cluster
    file `relay: HOST:PORT` says where it is, and `reachable: false` which nodes can only dial out. With certificates it
    needs `ca.pem`, `relay.pem` and `relay.key` (`walktalk certs --config CLUSTER.yaml` makes them), and nodes encrypt
    from one end to the other: it sees who talks to whom and how much, but not what. It may be ended and started again
    at any time; the nodes come back within seconds.
    """
    import asyncio
    import logging

    from walktalk.errors import SpecError
    from walktalk.runtimes.peers import Relay, load_cluster

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("walktalk").setLevel(logging.INFO)
    cluster = load_cluster(config)
    if not cluster.relay and not listen:
        raise SpecError(f"relay: {config} names none; add `relay: HOST:PORT`, or give --listen")
    if listen and not listen.rpartition(":")[2].isdecimal():
        raise SpecError(f"--listen {listen!r}: give host:port, e.g. 0.0.0.0:7446")
    files = cluster.relay_credentials()
    asyncio.run(_serve(Relay(listen or f"0.0.0.0:{cluster.relay.rpartition(':')[2]}", files), files is not None))


async def _serve(relay: Relay, secure: bool) -> None:
    """Until a signal comes."""
    import asyncio
    import signal
    from contextlib import suppress

    work = asyncio.create_task(relay.serve())
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    how = "mutual TLS" if secure else "WITHOUT certificates: anyone may come"
    typer.echo(f"relay: listens on port {relay.port}, {how}   (Ctrl-C ends it)", err=True)
    with suppress(asyncio.CancelledError):
        await work
    typer.echo(f"relay: ends; {relay.passed_on.total / 1e6:,.1f} MB were passed on", err=True)
