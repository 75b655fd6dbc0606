"""`walktalk leave`: nodes leave a cluster for good, while the others go on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

REFUSED = 1  # exit code: somebody has not left


def leave(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Nodes of the cluster.")],
    config: Annotated[Path, typer.Option(help="The cluster's YAML file.")],
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to wait for answers.")] = 5.0,
    dead: Annotated[
        bool, typer.Option("--dead", help="They do not answer and will not come back: let them go without asking.")
    ] = False,
) -> None:
    """Let nodes leave for good: their walks are handed on, and others take their places in the graph.

    `walktalk stop` and Ctrl-C are for a while: such a node can be started again.
    """
    from walktalk.runtimes.peers import ask_to_leave, load_cluster

    said = ask_to_leave(load_cluster(config), names, seconds, dead)
    for name, answer in said.items():
        typer.echo(f"{name}: {answer or 'leaves for good'}", err=bool(answer))
    if any(said.values()):
        raise typer.Exit(REFUSED)
