"""Who won, as a table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from walktalk.report import Results, in_words, results_table

NAME = 12  # characters, of an algorithm: its longest word
WIDTH = 100  # where there is no terminal to say


def print_results(summary: dict[str, Any], folder: Path, page: Path) -> None:
    """The table of results, and where everything was written."""
    console = print_table(results_table(summary))
    console.print(f"Report   {page}", highlight=False, soft_wrap=True)
    console.print(
        f"Records  {folder} (spec.yaml, history.csv, summary.json, figures/, runs/)", highlight=False, soft_wrap=True
    )


def print_table(results: Results) -> Console:
    """A table of results, the best of each column marked; where it was printed."""
    console = _console()
    table = _table(results.title, results.note)
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
    return console


def print_differences(studies: list[str], differences: Mapping[str, list[Any]], without: str) -> None:
    """A row for each setting in which studies differ; `without` is what to say where none does."""
    console = _console()
    if not differences:
        console.print(without, highlight=False)
        return
    table = _table("Settings that differ")
    for head in ("Setting", *studies):
        table.add_column(head, overflow="fold")
    for key, values in differences.items():
        table.add_row(key, *(Text(in_words(value)) for value in values))
    console.print(table)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def _table(title: str, caption: str | None = None) -> Table:
    looks: Any = {"title_justify": "left", "title_style": "bold", "caption_justify": "left"}
    return Table(box=SIMPLE_HEAD, title=title, caption=caption, **looks)
