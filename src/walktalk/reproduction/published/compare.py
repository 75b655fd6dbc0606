"""What was published, what we found, and the difference."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from walktalk.records import read_history, yaml_text
from walktalk.reproduction.published.table import Row, Table


class Compared(NamedTuple):
    """One cell, in %."""

    row: Row
    column: str
    lr: float  # that it was run with
    published: float | None
    ours: float
    each: dict[str, float]  # what else was measured at the end
    iterations: int
    gigabytes: float  # sent by all nodes

    wanted: int  # iterations of the published setting

    @property
    def in_small(self) -> bool:
        """Whether it was run for less long than published."""
        return self.iterations < self.wanted

    @property
    def diverged(self) -> bool:
        """Whether its models are no numbers in the end."""
        return math.isnan(self.ours)

    @property
    def difference(self) -> float | None:
        """Ours less the published number, where both mean the same."""
        if self.published is None or math.isnan(self.published) or self.in_small or self.diverged:
            return None
        return self.ours - self.published


HEADINGS = {"alpha": "α", "lost": "lost, %"}  # what the names of a table's columns begin with, and what that is
FURTHER = ("each_test_accuracy_worst", "each_test_accuracy_mean", "test_accuracy", "mean_test_accuracy")


def history_of(folder: Path, table: Table, row: Row, column: str) -> Path:
    """Where the history of a cell is."""
    return folder / table.name / column / f"{row.name}.csv"


def spec_beside(history: Path) -> Path:
    """Where the settings are that a cell was run with, once it is whole."""
    return history.with_suffix(".yaml")


def compared(table: Table, folder: Path, until: int | None = None) -> list[Compared]:
    """All cells of a table that are there; as they were after `until` iterations, if given."""
    found = []
    for row, column in table.cells():
        path = history_of(folder, table, row, column)
        if path.is_file():
            history = read_history(path)
            some = history if until is None else history[history["iteration"] <= until]
            found.append(_cell(table, row, column, some)._replace(lr=rate_of(path, row.cells[column].lr)))
    return found


def rate_of(history: Path, usual: float) -> float:
    """The learning rate that a cell was run with: as its settings say, or the table's where there are none yet."""
    beside = spec_beside(history)
    return float(yaml_text.read(beside)["algorithms"][0]["lr"]) if beside.is_file() else usual


def _cell(table: Table, row: Row, column: str, history: pd.DataFrame) -> Compared:
    end = history["iteration"].max()
    last = history[history["iteration"] >= table.last * end]
    each = {name: 100.0 * float(last[name].mean()) for name in FURTHER if name in last}
    each["train_loss"] = float(last["mean_train_loss"].mean())
    measured = 100.0 * float(last[table.measure].mean())
    cell = row.cells[column]
    gigabytes = float(history["bits"].iloc[-1]) / 8e9
    wanted = int(table.paper["stop"]["iterations"])
    return Compared(row, column, cell.lr, cell.value, measured, each, int(end), gigabytes, wanted)


def as_frame(cells: Iterable[Compared]) -> pd.DataFrame:
    """One line a cell."""
    return pd.DataFrame(
        {
            "row": cell.row.name,
            "column": cell.column,
            "lr": cell.lr,
            "published": cell.published,
            "ours": round(cell.ours, 2),
            "difference": None if cell.difference is None else round(cell.difference, 2),
            **{name: round(value, 4) for name, value in cell.each.items()},
            "iterations": cell.iterations,
            "gigabytes": round(cell.gigabytes, 3),
        }
        for cell in cells
    )


def as_markdown(table: Table, cells: Iterable[Compared]) -> str:
    """The table as people read it; with the worst and the mean node and the mean model beside it."""
    prefix = next((name for name in HEADINGS if all(column.startswith(name) for column in table.columns)), "")
    lines = [
        f"| algorithm | {HEADINGS.get(prefix, 'data')} | rate | published | ours | difference "
        "| worst node | mean node | mean model | training loss | GB sent |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        title = f"*{cell.row.title}*" if cell.row.is_ours else cell.row.title
        known = _published(cell)
        apart = "in small" if cell.in_small else "–" if cell.difference is None else f"{cell.difference:+.1f}"
        each = cell.each
        names = ("each_test_accuracy_worst", "each_test_accuracy_mean", "mean_test_accuracy")
        more = [f"{each[name]:.1f}" if name in each and not cell.diverged else "–" for name in names]
        found, loss = ("diverged", "–") if cell.diverged else (f"{cell.ours:.1f}", f"{each['train_loss']:.3f}")
        lines.append(
            f"| {title} | {cell.column.removeprefix(prefix)} | {cell.lr:g} | {known} | {found} | {apart} "
            f"| {' | '.join(more)} | {loss} | {cell.gigabytes:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def _published(cell: Compared) -> str:
    if cell.published is None:
        return "–"
    return "diverges" if math.isnan(cell.published) else f"{cell.published:.1f}" + _seeds(cell)


def _seeds(cell: Compared) -> str:
    seeds = cell.row.cells[cell.column].seeds
    if len(seeds) == 1:
        return f" (up to {seeds[0]:.1f})"
    return f" ({min(seeds):.1f}–{max(seeds):.1f})" if seeds else ""
