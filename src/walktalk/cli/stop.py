"""`walktalk stop`: ask every node of a cluster to hand its walks on and leave."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

NOBODY = 1  # exit code: nothing was stopped, be it that nobody is there or that nobody can be reached


def stop(
    config: Annotated[Path, typer.Option(help="The cluster's YAML file.")],
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to wait for answers.")] = 3.0,
) -> None:
    """Stop a cluster."""
    from walktalk.runtimes.peers import STOP, ask_everyone, load_cluster

    answers = ask_everyone(load_cluster(config), STOP, seconds)
    silent = [name for name, answer in answers.items() if answer is None]
    typer.echo(f"{len(answers) - len(silent)} of {len(answers)} nodes leave")
    if silent:
        typer.echo(f"no answer from {', '.join(silent)}")
    if len(silent) == len(answers):
        raise typer.Exit(NOBODY)
