"""`walktalk compare`: several studies in one table and on one page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from walktalk.interactive import getting_ready


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR DIR...", help="The studies' folders.")],
    out: Annotated[
        Path | None, typer.Option(help="The page to write; compare.html in the folder that holds them all if left out.")
    ] = None,
) -> None:
    """Put several studies into one table and on one page, and say which of their settings differ."""
    with getting_ready("walktalk"):
        from walktalk.cli.tables import print_differences, print_table
        from walktalk.report import open_comparison, results_table, write_comparison

    comparison = open_comparison(folders)
    page = write_comparison(comparison, out if out is not None else _beside(folders) / "compare.html")
    print_table(results_table(comparison.summary, lambda label: comparison.algorithms[label].heading))
    print_differences(list(comparison.studies), comparison.differences, comparison.without_differences)
    if comparison.warning:
        typer.echo(comparison.warning)
    typer.echo(f"Page     {page}")


def _beside(folders: list[Path]) -> Path:
    """The folder that holds them all, as the person would write it."""
    return Path(os.path.relpath(os.path.commonpath([folder.resolve().parent for folder in folders])))
