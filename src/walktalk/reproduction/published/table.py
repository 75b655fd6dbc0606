"""A table that somebody published, as studies: its rows and columns, its numbers, and how they were measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import pandas as pd

from walktalk.core.errors import SpecError, suggestion
from walktalk.records import read_history, yaml_text

if TYPE_CHECKING:
    from walktalk.studies.spec import StudySpec

Scale: TypeAlias = Literal["smoke", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "paper")
Changes: TypeAlias = Mapping[str, Any]  # keys of a study, section by section


class Cell(NamedTuple):
    """A published number, in the table's unit, and the learning rate that it was found with."""

    lr: float
    value: float | None = None  # None: a row of our own, or a number that is not at hand; NaN: published as diverging
    seeds: tuple[float, ...] = ()  # each seed's, where they are known; one alone is the highest


@dataclass(frozen=True, eq=False)
class Row:
    """An algorithm on a graph."""

    name: str  # of its files
    title: str
    network: Changes
    algorithm: Changes  # an entry of a study's `algorithms`, but for the learning rate
    cells: Mapping[str, Cell]  # by column
    changes: Changes = field(default_factory=dict)  # what else is its own
    is_ours: bool = False  # not in the published table


@dataclass(frozen=True)
class Table:
    """One published table: its cells, their settings and numbers."""

    name: str
    title: str
    source: str  # where it was published
    columns: Mapping[str, Changes]  # name -> what it changes
    rows: tuple[Row, ...]
    measure: str  # column of a history
    measured: str  # the same in words
    last: float  # the share of a run behind which evaluations count; their mean is the number
    paper: Changes  # settings as published
    smoke: Changes  # what is changed for a try in small, with data that comes along
    within: float = 1.5  # points of difference that one seed alone may make

    def row(self, name: str) -> Row:
        found: Row = named(name, {row.name: row for row in self.rows}, f"row of {self.name}")
        return found

    def cells(self, rows: Iterable[str] = (), columns: Iterable[str] = ()) -> list[tuple[Row, str]]:
        """Those of some rows and columns, or of all where none is named."""
        some = [self.row(name) for name in rows] or list(self.rows)
        which = [name for name in columns if named(name, {c: c for c in self.columns}, f"column of {self.name}")]
        return [(row, column) for column in which or self.columns for row in some if column in row.cells]

    def at_rate(self, lr: float) -> Table:
        """The table with another learning rate in every cell."""
        rows = (replace(row, cells={c: cell._replace(lr=lr) for c, cell in row.cells.items()}) for row in self.rows)
        return replace(self, rows=tuple(rows))

    def spec(self, row: Row, column: str, scale: Scale, changes: Changes | None = None) -> StudySpec:
        """The study of a cell."""
        from walktalk.studies import make_spec  # imports torch, which who only lists the tables need not wait for

        content: dict[str, Any] = {}
        own = {"network": row.network, "algorithms": [{**row.algorithm, "label": row.name, "lr": row.cells[column].lr}]}
        parts = [self.paper, self.columns[column], own, row.changes]
        for part in (*parts, *([self.smoke] if scale == "smoke" else []), changes or {}):
            content = merged(content, part)
        return make_spec({**content, "name": f"{self.name}-{row.name}"})


def table_scale(name: str) -> Scale:
    """The scale of that name."""
    found: Scale = named(name, {scale: scale for scale in SCALES}, "scale")
    return found


def merged(one: Changes, other: Changes) -> dict[str, Any]:
    """Section by section, the other's keys first; `None` in place of a section or a key takes it away."""
    found = dict(one)
    for key, value in other.items():
        before = found.get(key)
        if key != "network" and isinstance(before, Mapping) and isinstance(value, Mapping) and "name" not in value:
            found[key] = {k: v for k, v in {**before, **value}.items() if v is not None}
        else:
            found[key] = value
    return found


def named(name: str, known: Mapping[str, Any], what: str) -> Any:
    if name not in known:
        raise SpecError(f"there is no {what} {name!r}; allowed: {', '.join(known)}{suggestion(name, known)}")
    return known[name]


# -- What was published, what we found, and the difference ------------------------------------------------------------


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
