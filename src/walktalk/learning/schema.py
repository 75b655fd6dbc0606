"""The form of a site's data, which sites compare before they train together; no value of it is in there.

Columns of a frame become numbers side by side. Two sites with the same columns in another order would train a model
that means something else at each of them, and nothing would fail. So a site says the names of its columns in their
order, their types and shapes, and what its targets are; a file for the operator also says the class of each column's
range (`whole numbers from 0, up to 100`), by which an age in months beside one in years is seen.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walktalk.learning.task import Task
from walktalk.learning.tasks import LoopTask, Outside
from walktalk.learning.user_data import Adapter, RaggedModel, is_several

LOOKED_AT = 512  # samples from which the classes of ranges are taken
FAR = 2  # powers of ten between the ranges of one column at two sites, from which on that is worth a word
SHOWN = 4  # names in one line
MOST = 20_000  # columns that a site may say it has


class ColumnSchema(NamedTuple):
    """One column of a site's data: inputs or targets."""

    name: str  # "" where it has none
    kind: str  # the type of its numbers
    shape: tuple[int, ...]  # of one sample
    is_target: bool = False
    range: str = ""  # its class, in words; "" where it is not told
    decade: int = 0  # the power of ten that no number in it exceeds

    @property
    def called(self) -> str:
        """What a person calls it."""
        what = "target" if self.is_target else "column"
        return f"{what} {self.name}" if self.name else "the targets" if self.is_target else "the inputs"


@dataclass(frozen=True)
class Schema:
    """The columns of a site's data, in the order in which a model takes them, and a digest of all but their ranges."""

    columns: tuple[ColumnSchema, ...]
    digest: str

    @staticmethod
    def of(columns: tuple[ColumnSchema, ...]) -> Schema:
        """A schema with its digest."""
        told = json.dumps([[c.name, c.kind, list(c.shape), c.is_target] for c in columns])
        return Schema(columns, hashlib.blake2b(told.encode(), digest_size=8).hexdigest())

    def said(self, ranges: bool = False, most: int | None = None) -> dict[str, Any]:
        """The schema as JSON can say it.

        Args:
            ranges: with the classes of ranges.
            most: characters; a longer one says its digest and how many columns there are.
        """
        columns = [[c.name, c.kind, list(c.shape), c.is_target] for c in self.columns]
        told = {"digest": self.digest, "count": len(columns), "columns": columns}
        if most is not None and len(json.dumps(told)) > most:
            return {"digest": self.digest, "count": len(columns)}
        if ranges:
            told["columns"] = [[*column, c.range, c.decade] for column, c in zip(columns, self.columns, strict=True)]
        return told


def heard_schema(said: Any) -> Schema | None:
    """The schema that somebody says; None where nothing is said, `ValueError` where that is none."""
    if not isinstance(said, Mapping) or "digest" not in said:
        return None
    columns = said.get("columns", [])
    if not isinstance(columns, list) or len(columns) > MOST:
        raise ValueError("no schema: its columns are no list")
    found = []
    for one in columns:
        name, kind, shape, is_target, *more = one
        words, decade = (*more, "", 0)[:2]
        whole = all(type(number) is int for number in (*shape, decade))
        if not all(isinstance(text, str) for text in (name, kind, words)) or not whole or type(is_target) is not bool:
            raise ValueError("no schema: a column is of another form")
        found.append(ColumnSchema(name, kind, tuple(shape), is_target, words, decade))
    return Schema(tuple(found), str(said["digest"])[:64])


def schema_of(task: Task) -> Schema | None:
    """The schema of the data that a task holds; None where it is a script's or a loop's own, and not seen here."""
    if isinstance(task, LoopTask) or isinstance(task.model, Outside):
        return None
    if isinstance(task.model, RaggedModel):
        return Schema.of(tuple(_of_batch(task.model)))
    count = min(len(task.inputs), LOOKED_AT)
    inputs, targets = task.inputs[:count], task.targets[:count]
    found: list[ColumnSchema] = []
    if isinstance(task.model, Adapter) and task.model.packing is not None:
        several = task.model.packing.unpack(inputs)
        by_name = task.model.call in ("by name", "as a dictionary")
        found += [_column(name, several[name]) for name in (sorted(several) if by_name else several)]
    elif task.columns and inputs.dim() == 2 and inputs.shape[1] == len(task.columns):
        found += [_column(name, inputs[:, place]) for place, name in enumerate(task.columns)]
    else:
        found.append(_column("", inputs))
    if len(task.target_columns) > 1 and targets.dim() == 2 and targets.shape[1] == len(task.target_columns):
        found += [_column(name, targets[:, place], True) for place, name in enumerate(task.target_columns)]
    else:
        found.append(_column(" ".join(task.target_columns), targets, True))
    return Schema.of(tuple(found))


def _column(name: str, values: Tensor, is_target: bool = False) -> ColumnSchema:
    kind = str(values.dtype).removeprefix("torch.")
    words, decade = _class_of_range(values)
    return ColumnSchema(name, kind, tuple(values.shape[1:]), is_target, words, decade)


def _class_of_range(values: Tensor) -> tuple[str, int]:
    """The class of a range in words, and its power of ten: nobody can tell a value from it."""
    if values.is_complex() or not values.numel():
        return "", 0
    numbers = values.double().reshape(-1)
    numbers = numbers[torch.isfinite(numbers)]
    if not len(numbers):
        return "", 0
    whole, largest = bool((numbers == numbers.round()).all()), float(numbers.abs().max())
    decade = max(0, math.ceil(math.log10(largest))) if largest > 0.0 else 0
    if whole and bool(((numbers == 0) | (numbers == 1)).all()):
        return "0 or 1", 0
    kind = "whole numbers" if whole else "numbers"
    return f"{kind} {'of both signs' if bool((numbers < 0).any()) else 'from 0'}, up to {10**decade:,}", decade


def _of_batch(model: RaggedModel) -> Iterator[ColumnSchema]:
    """The columns of one batch of samples that have no shape in common, as the person's `collate` made it."""
    batch = model.samples.batch([0], model.inner, model.loss is None)
    named = {**{str(k): thing for k, thing in enumerate(batch.arguments)}, **batch.named}
    for name, thing in named.items():
        yield ColumnSchema(name, _kind(thing), ())
    if batch.targets is not None:
        yield ColumnSchema("", _kind(batch.targets), (), True)


def _kind(thing: Any) -> str:
    if isinstance(thing, Tensor):
        return str(thing.dtype).removeprefix("torch.")
    if isinstance(thing, Mapping):
        return " ".join(f"{name}:{_kind(value)}" for name, value in sorted(thing.items()))
    return " ".join(map(_kind, thing)) if is_several(thing) else type(thing).__name__


# -- comparing ---------------------------------------------------------------------------------------------------------


def schema_differences(
    here: Schema | None, there: Schema | None, places: tuple[str, str] = ("here", "there")
) -> list[str]:
    """What of two sites' data is not the same, in words, so that they must not train together; empty: nothing.

    Args:
        here, there: the two; where one is not known, nothing is compared.
        places: what the two are called.
    """
    if here is None or there is None or here.digest == there.digest:
        return []
    if not here.columns or not there.columns:
        return [f"the data's schema is {there.digest} {places[1]} and {here.digest} {places[0]}"]
    return [word for is_target in (False, True) for word in _side(here, there, places, is_target)] or [
        f"the data's schema is {there.digest} {places[1]} and {here.digest} {places[0]}"
    ]


def _side(here: Schema, there: Schema, places: tuple[str, str], is_target: bool) -> Iterator[str]:
    ours, theirs = ({c.name: c for c in s.columns if c.is_target is is_target} for s in (here, there))
    what = "targets" if is_target else "columns"
    for mine, other, place in ((ours, theirs, places[1]), (theirs, ours, places[0])):
        lacking = [name or "without a name" for name in mine if name not in other]
        if lacking:
            yield f"{place} there are no {what} {_listed(lacking)}"
    common = [name for name in ours if name in theirs]
    order = [name for name in theirs if name in ours]
    if common != order:
        wrong = [k for k, (one, other) in enumerate(zip(common, order, strict=True)) if one != other]
        names = [_listed([names[k] for k in wrong]) for names in (order, common)]
        yield f"the {what} are in another order: {names[0]} {places[1]} and {names[1]} {places[0]}"
    for name in common:
        own, far = ours[name], theirs[name]
        if (own.kind, own.shape) != (far.kind, far.shape):
            yield f"{own.called} is {_form(far)} {places[1]} and {_form(own)} {places[0]}"


def range_differences(here: Schema, there: Schema, places: tuple[str, str] = ("here", "there")) -> list[str]:
    """Columns whose numbers are of another class of range, as an age in months and one in years; worth a look."""
    theirs = {(c.name, c.is_target): c for c in there.columns if c.range}
    words = []
    for one in here.columns:
        other = theirs.get((one.name, one.is_target))
        if one.range and other is not None and abs(one.decade - other.decade) >= FAR:
            words.append(f"{one.called}: {other.range} {places[1]}, {one.range} {places[0]}")
    return words


def _form(one: ColumnSchema) -> str:
    return f"{one.kind} {list(one.shape)}" if one.shape else one.kind


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
