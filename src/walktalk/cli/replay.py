"""`walktalk replay`: a run as a short film, for a README or a talk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def replay(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A study's folder.")],
    gif: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the film: a .gif or a .webp file.")],
    algorithm: Annotated[
        str | None, typer.Option(help="Whose run, by its label; the first with a few walks if left out.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1.0, max=60.0, help="How long the film lasts.")] = 10.0,
) -> None:
    """Make a small film of a run: the network at work, and the loss that falls. The report has the run to explore."""
    from walktalk.report import write_film

    typer.echo(write_film(folder, gif, algorithm=algorithm, seconds=seconds))
