"""What several commands share: the options of live pages, and what a shell offers after the Tab key."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from walktalk.core.errors import UnavailableError

Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without", metavar="NAME", help="Do not ask this node: what it answers is not to be trusted. Repeatable."
    ),
]
"""Whom an operator leaves out, an option of every command that asks the nodes of a cluster."""


def check_live(live: bool, port: int | None, host: str | None) -> None:
    """`--port` and `--host` say where the live page is, so there must be one."""
    named = "--port" if port is not None else "--host" if host is not None else None
    if named is not None and not live:
        raise UnavailableError(f"{named} says where the live page listens; add --live, or leave it out")


def report_to_both(first: Callable[[Any], None], second: Callable[[Any], None]) -> Callable[[Any], None]:
    """A function that passes every report on to two others."""

    def tell(report: Any) -> None:
        first(report)
        second(report)

    return tell


def keep_open(url: str) -> None:
    """Keep the page up for a person at a terminal, who may only now open it; a script goes on at once."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    typer.echo(f"The page stays at {url} until Ctrl-C.", err=True)
    with suppress(KeyboardInterrupt):
        while not threading.Event().wait(3600):  # so that Ctrl-C is heard on every system
            pass
    typer.echo("", err=True)


# -- What a shell offers after the Tab key, beside options ------------------------------------------------------------


def complete_study(incomplete: str) -> list[str]:
    """Presets that begin like this; files are the shell's own part."""
    from walktalk.studies import preset_names

    return [name for name in preset_names() if name.startswith(incomplete)]


def complete_table(incomplete: str) -> list[str]:
    """Published tables that begin like this."""
    from walktalk.reproduction import published

    return [name for name in published.TABLES if name.startswith(incomplete)]


def complete_figure(incomplete: str) -> list[str]:
    """Studies of the paper that begin like this."""
    from walktalk.reproduction import paper

    return [name for name in (*paper.FIGURES, "all") if name.startswith(incomplete)]


# -- Where else what is measured is written: options of `run`, `collect` and `node` -----------------------------------

Board: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Write what is measured for TensorBoard, too.")
]
MlflowUri: TypeAlias = Annotated[
    str | None, typer.Option(metavar="URI", help="Write what is measured to MLflow, too; e.g. http://localhost:5000.")
]
WandbProject: TypeAlias = Annotated[
    str | None, typer.Option(metavar="PROJECT", help="Write what is measured to Weights & Biases, too.")
]


def trackers(tensorboard: Path | None, mlflow: str | None, wandb: str | None) -> list[Any]:
    """The callbacks that were asked for; one line that says what to install, where a package is missing."""
    from walktalk.api import MLflow, TensorBoard, WandB

    asked: list[tuple[Any, Any]] = [(TensorBoard, tensorboard), (partial(MLflow, None), mlflow), (WandB, wandb)]
    return [make(where) for make, where in asked if where is not None]
