"""`walktalk plot`: one figure of a study, as PNG, SVG and PDF."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Kind(Enum):
    """What to draw."""

    curves = "curves"
    timeline = "timeline"
    network = "network"
    partition = "partition"
    failures = "failures"


class Axis(Enum):
    """What curves are drawn against."""

    iteration = "iteration"
    time = "time"
    bits = "bits"


def plot(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A study's folder.")],
    kind: Annotated[
        Kind, typer.Option(metavar="KIND", help="What to draw: curves, timeline, network, partition or failures.")
    ] = Kind.curves,
    x: Annotated[
        Axis, typer.Option("--x", metavar="AXIS", help="For curves: against iteration, time or bits.")
    ] = Axis.iteration,
    algorithm: Annotated[
        str | None, typer.Option(help="For a time line: whose, by label; the first if left out.")
    ] = None,
    repetition: Annotated[int, typer.Option(min=0, help="For a time line: which repetition.")] = 0,
    start: Annotated[float, typer.Option("--from", min=0.0, help="For a time line: first second.")] = 0.0,
    end: Annotated[
        float | None, typer.Option("--to", help="For a time line: last second; a few iterations if left out.")
    ] = None,
) -> None:
    """Draw a figure of a study and write it as PNG, SVG and PDF to its folder."""
    from walktalk.report import Window, draw

    for path in draw(folder, kind.value, x.value, Window(algorithm, repetition, start, end)):
        typer.echo(path)
