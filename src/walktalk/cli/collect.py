"""`walktalk collect`: a cluster's model, history and page, as any study's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from walktalk.interactive import getting_ready

if TYPE_CHECKING:
    from walktalk.studies.collecting import Collected, Participant


def collect(
    config: Annotated[Path, typer.Option(help="The cluster's YAML file.")],
    out: Annotated[Path, typer.Option(help="The folder to write: model, history, trace, page.")],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the run is over; nodes stay up until they have been asked.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is in the folder, once the new results are whole.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to wait for answers.")] = 3.0,
) -> None:
    """Collect what a cluster has learned: its model, who took part, the history and a page, in one folder.

    Works while it runs, after its end, and where nodes are dead: of a node that does not answer, what is in its folder
    counts, if that is on this machine. No samples travel.
    """
    with getting_ready("walktalk"):
        from walktalk.report import write_report
        from walktalk.runtimes.peers import load_cluster
        from walktalk.studies.collecting import collect as collected_from

    try:
        with _shown() as shown:
            collected = collected_from(
                load_cluster(config),
                out,
                overwrite=overwrite,
                wait=wait,
                seconds=seconds,
                say=lambda line: typer.echo(f"collect: {line}", err=True),
                shown=shown,
            )
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt("stopped; nothing was written, and the nodes go on") from stop
    print_collected(collected, write_report(out))


@contextmanager
def _shown() -> Iterator[Callable[[str], None]]:
    """How far the run is, on a line of the terminal that goes away again; elsewhere nothing."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda line: None
        return
    with console.status("collects …") as line:
        yield line.update


def print_collected(collected: Collected, page: Path) -> None:
    """Who took part, which copy the model is, and where everything lies."""
    for one in collected.nodes:
        typer.echo(f"{one.name:12} {_in_words(one)}")
    typer.echo(f"\nThe run {'is still going on' if collected.state == 'running' else f'is {collected.state}'}.")
    typer.echo(f"The model is {collected.copy}.")
    typer.echo(f"Model    {collected.model}")
    typer.echo(f"Report   {page}")


def _in_words(one: Participant) -> str:
    if not one.source:
        return "nothing is known of it: it does not answer, and its folder is not here"
    lives = "" if one.lives == 1 else f" in {one.lives} lives"
    return f"{one.state:9} {one.seconds:,.1f} s{lives}, {one.iterations:,} iterations, {one.bytes / 1e6:,.1f} MB sent"
