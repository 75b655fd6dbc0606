"""Who won, as a table for the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from walktalk.report import results_table

NAME = 12  # characters, of an algorithm: its longest word
WIDTH = 100  # where there is no terminal to say


def print_results(summary: dict[str, Any], folder: Path, page: Path) -> None:
    """The table of results, and where everything was written."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    results = results_table(summary)
    table = Table(
        box=SIMPLE_HEAD,
        title=results.title,
        title_justify="left",
        title_style="bold",
        caption=results.note,
        caption_justify="left",
    )
    for index, head in enumerate(results.head):
        # Where it is too wide, a name takes two lines; a number only on a narrow terminal.
        keep = index > 0 and console.width >= WIDTH
        table.add_column(
            head, justify="left" if index == 0 else "right", no_wrap=keep, min_width=None if index else NAME
        )
    for row in results.rows:
        table.add_row(*(Text(cell.text, style="bold green" if cell.best else "") for cell in row))
    console.print(table)
    if results.warning:
        console.print(results.warning, style="bold red", highlight=False, soft_wrap=True)
    console.print(f"Report   {page}", highlight=False, soft_wrap=True)
    console.print(
        f"Records  {folder} (spec.yaml, history.csv, summary.json, figures/, runs/)", highlight=False, soft_wrap=True
    )
