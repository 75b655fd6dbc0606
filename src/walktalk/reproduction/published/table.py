"""A table that somebody published, as studies: its rows and columns, its numbers, and how they were measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from walktalk.core.errors import SpecError, suggestion

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
