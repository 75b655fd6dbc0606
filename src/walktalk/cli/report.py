"""`walktalk report`: the page of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(folder: Annotated[Path, typer.Argument(metavar="DIR", help="A study's folder.")]) -> None:
    """Draw a study's figures again and write its page, report.html."""
    from walktalk.report import write_report

    typer.echo(write_report(folder))
