"""Who won, as a table for the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from walktalk.plots import title_of
from walktalk.report import results_table

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
        table.add_column(head, justify="left" if index == 0 else "right", no_wrap=index == 0)
    for row in results.rows:
        table.add_row(*(Text(cell.text, style="bold green" if cell.best else "") for cell in row))
    console.print(table)
    if told := diverged(summary):
        console.print(told, style="bold red", highlight=False, soft_wrap=True)
    console.print(f"Report   {page}", highlight=False, soft_wrap=True)
    console.print(
        f"Records  {folder} (spec.yaml, history.csv, summary.json, figures/, runs/)", highlight=False, soft_wrap=True
    )


def diverged(summary: dict[str, Any]) -> str:
    """Which runs ended with a loss that is no number, and what helps; nothing where none did."""
    found = summary.get("diverged", {})
    if not found:
        return ""
    counts = {label: summary["algorithms"][label]["repetitions"] for label in found}
    who = "; ".join(f"{title_of(label)} ({len(runs)} of {counts[label]} runs)" for label, runs in found.items())
    return f"Diverged, the loss is not a number: {who}. A smaller optimizer.lr may help."
