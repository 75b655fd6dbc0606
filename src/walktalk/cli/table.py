"""`walktalk table`: a study's results for a paper or a spreadsheet."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from walktalk.interactive import getting_ready


class Form(Enum):
    """How it is written."""

    latex = "latex"
    markdown = "markdown"
    csv = "csv"


def table(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="A study's folder, or several to put into one table.")
    ],
    form: Annotated[
        Form, typer.Option(help="latex, for the package booktabs; markdown; or csv, the bare numbers.")
    ] = Form.latex,
) -> None:
    """Print the table of results as LaTeX, Markdown or CSV, for a paper or a spreadsheet."""
    with getting_ready("walktalk"):
        from walktalk.report import latex, markdown, numbers, open_comparison, open_study, results_table

    if len(folders) == 1:
        study = open_study(folders[0])
        summary, name = study.summary, None
    else:
        comparison = open_comparison(folders)
        summary, name = comparison.summary, lambda label: comparison.algorithms[label].heading
    if form is Form.csv:
        typer.echo(numbers(summary, name).to_csv().rstrip("\n"))
    else:
        results = results_table(summary, name)
        typer.echo(latex(results) if form is Form.latex else markdown(results))
