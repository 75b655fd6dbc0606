"""One node's data: inputs, which may have several columns with names, and targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from walktalk.core.errors import DataError
from walktalk.learning.samples import all_seeded

TARGETS = ("labels", "label", "targets", "target", "y")  # names of a column of targets, where nobody says which it is
READ_AT_ONCE = 1024  # samples, where all of them are read one batch after another
SAMPLES_TRIED = 4  # to see whether they are changed at random
SEEDS_TRIED = 4


@dataclass(frozen=True)
class Choice:
    """Which columns of named ones are used, and how single samples become a batch."""

    target: str | Sequence[str] | None = None  # None: the first of `TARGETS` that is there
    columns: Sequence[str] | None = None  # of the inputs; None: all that are not the target
    accepted: frozenset[str] | None = None  # what the model takes by name: others are left out; None: anything
    own_loss: bool = False  # whether the model computes its loss: then it is given several targets by their names
    collate: Callable[[list[Any]], Any] | None = None  # samples -> batch; None: each column stacked

    @property
    def in_columns(self) -> bool:
        """Whether measured targets have a dimension for their columns even where it is one: `target` is a list.

        `frame[["dose"]]` has two dimensions, too, and so has what `Linear(…, 1)` puts out. Classes have one: that is
        what losses for them take.
        """
        return self.target is not None and not isinstance(self.target, str)

    def target_among(self, names: Sequence[str], where: str) -> list[str]:
        """The column of targets, or several."""
        if self.target is None:
            found = [name for name in TARGETS if name in names][:1]
            if not found:
                listed = ", ".join(map(str, names))
                raise DataError(f"{where}: which of its columns are the targets? Say target=…; there are {listed}")
            return found
        wanted = [self.target] if isinstance(self.target, str) else list(self.target)
        missing = [name for name in wanted if name not in names]
        if missing:
            raise DataError(f"{where}: there is no column {missing[0]!r} for target; there are {', '.join(names)}")
        return wanted

    def inputs_among(self, names: Sequence[str], targets: Sequence[str], where: str) -> list[str]:
        """The columns of inputs, in their order."""
        if self.columns is not None:
            missing = [name for name in self.columns if name not in names]
            if missing:
                raise DataError(f"{where}: there is no column {missing[0]!r}; there are {', '.join(names)}")
            return list(self.columns)
        rest = [name for name in names if name not in targets]
        known = [name for name in rest if self.accepted is not None and name in self.accepted]
        found = known or rest
        if not found:
            raise DataError(f"{where}: beside its targets it has no column, so the model has no inputs")
        return found


class NamedColumns(NamedTuple):
    """Samples by the names of their columns; a batch of them, or all."""

    inputs: dict[str, Tensor]  # by name; "" is the only input, which has none
    targets: dict[str, Tensor]  # the same; "0", "1", … are those of a tuple

    @property
    def columns(self) -> tuple[Tensor, ...]:
        """All of them, inputs first."""
        return (*self.inputs.values(), *self.targets.values())

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return len(next(iter(self.targets.values())))


class Part(ABC):
    """The samples of one node, wherever they are."""

    where: str  # what a person calls it, e.g. partitions['north']
    columns: tuple[str, ...] = ()  # of a frame: those that stand side by side as the input
    target_columns: tuple[str, ...] = ()  # the same of the targets

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, numbers: Sequence[int]) -> NamedColumns:
        """Reads the samples of these numbers."""

    @abstractmethod
    def whole(self) -> InMemory:
        """All of them, in memory."""


class InMemory(Part):
    """Samples of a node as tensors in memory."""

    def __init__(
        self, where: str, content: NamedColumns, columns: tuple[str, ...] = (), target_columns: tuple[str, ...] = ()
    ) -> None:
        self.where, self.content = where, checked(content, where)
        self.columns, self.target_columns = columns, target_columns

    def __len__(self) -> int:
        return self.content.samples

    def read(self, numbers: Sequence[int]) -> NamedColumns:
        places = torch.as_tensor(numbers, dtype=torch.int64)
        return NamedColumns(*({name: column[places] for name, column in side.items()} for side in self.content))

    def whole(self) -> InMemory:
        return self


class OnDemand(Part):
    """Samples of a map-style dataset, read when they are wanted."""

    def __init__(self, where: str, data: Any, choice: Choice) -> None:
        self.where, self.data, self.choice = where, data, choice
        if len(data) == 0:
            raise DataError(f"{where}: it has no samples; every node needs at least one")
        self.first = self.read([0])  # a mistake shows at once

    def __len__(self) -> int:
        return len(self.data)

    def read(self, numbers: Sequence[int]) -> NamedColumns:
        try:
            several = getattr(self.data, "__getitems__", None)  # as torch's own loaders do
            samples = several(list(numbers)) if several is not None else [self.data[k] for k in numbers]
            batch = (self.choice.collate or stacked)(list(samples))
        except (TypeError, ValueError, RuntimeError, KeyError, IndexError) as error:
            reason = " ".join(str(error).split())
            raise DataError(
                f"{self.where}: its samples are not (input, target) pairs of equal shape, or dictionaries of such "
                f"({reason}); pad or cut them, or say collate=…"
            ) from error
        return checked(split_up(batch, self.where, self.choice), self.where)

    def whole(self) -> InMemory:
        batches = [self.read(range(k, min(k + READ_AT_ONCE, len(self)))) for k in range(0, len(self), READ_AT_ONCE)]
        return InMemory(self.where, joined(batches, self.where))

    @cached_property
    def draws(self) -> bool:
        """Whether samples are changed at random as they are read, as an augmentation does: found by trying."""
        some = range(min(SAMPLES_TRIED, len(self)))

        def outcome(seed: int) -> NamedColumns:
            with all_seeded(seed):
                return self.read(some)

        first = outcome(0)
        return any(not are_equal(outcome(seed), first) for seed in range(1, SEEDS_TRIED))

    @property
    def bytes(self) -> int:
        """What all of it would take, if all samples are like the first."""
        return len(self) * sum(t.numel() * t.element_size() for t in self.first.columns)


def are_equal(one: NamedColumns, other: NamedColumns) -> bool:
    """Whether all numbers are the same; NaN is itself."""
    pairs = zip(one.columns, other.columns, strict=True)
    return all(a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def stacked(samples: list[Any]) -> Any:
    """Puts single samples together as a batch.

    Pairs and dictionaries column by column, and what is no number as it is.
    """
    first = samples[0]
    if isinstance(first, Mapping):
        return {name: stacked_column([sample[name] for sample in samples]) for name in first}
    if not isinstance(first, (tuple, list)):
        raise TypeError(f"a sample is a {type(first).__name__}")
    if any(len(sample) != len(first) for sample in samples):
        raise ValueError("they have different numbers of entries")
    return tuple(
        stacked([sample[k] for sample in samples])
        if isinstance(first[k], Mapping) or is_several(first[k])
        else stacked_column([sample[k] for sample in samples])
        for k in range(len(first))
    )


def is_several(entry: Any) -> bool:
    """Whether this is a tuple of arrays, each a column by itself, and not the numbers of one."""
    return isinstance(entry, tuple) and any(getattr(column, "ndim", 0) > 0 for column in entry)


def stacked_column(values: list[Any]) -> Any:
    """Numbers as a tensor; texts and the like as they are, for the model may not want them."""
    if isinstance(values[0], (str, bytes)) or values[0] is None:
        return values
    return torch.stack([torch.as_tensor(writable(value)) for value in values])


def split_up(batch: Any, where: str, choice: Choice) -> NamedColumns:
    """Splits a batch, whatever its form, into inputs and targets."""
    if isinstance(batch, Mapping):
        names = [str(name) for name in batch]
        targets = choice.target_among(names, where)
        wanted = choice.inputs_among(names, targets, where)
        found = {name: as_tensor(batch[name], where, name) for name in targets}
        return NamedColumns({name: as_tensor(batch[name], where, name) for name in wanted}, side_by_side(found, choice))
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        raise DataError(f"{where}: a batch should be (inputs, targets) or a dictionary, not {type(batch).__name__}")
    *inputs, target = batch
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        wanted = choice.inputs_among([str(name) for name in inputs[0]], [], where)
        named = {name: as_tensor(inputs[0][name], where, name) for name in wanted}
    elif len(inputs) == 1:
        named = {"": as_tensor(inputs[0], where, "inputs")}
    else:
        named = {str(k): as_tensor(column, where, f"entry {k}") for k, column in enumerate(inputs)}
    if isinstance(target, Mapping):
        return NamedColumns(named, {str(name): as_tensor(column, where, str(name)) for name, column in target.items()})
    if is_several(target):
        return NamedColumns(named, {str(k): as_tensor(column, where, f"target {k}") for k, column in enumerate(target)})
    return NamedColumns(named, {"": as_tensor(target, where, "targets")})


def side_by_side(columns: dict[str, Tensor], choice: Choice) -> dict[str, Tensor]:
    """Named columns of targets as the one tensor that most losses take; by name where that cannot be, or where the
    model itself takes them by name."""
    first = next(iter(columns.values()))
    if len(columns) > 1 and (choice.own_loss or any(column.dim() != 1 for column in columns.values())):
        return columns
    measured = first.is_floating_point() and first.dim() == 1
    alone = len(columns) == 1 and not (choice.in_columns and measured)
    return {"": first if alone else torch.stack(list(columns.values()), 1)}


def writable(values: Any) -> Any:
    """An array that torch may share memory with: a copy of one that nobody may write to, of which torch would warn."""
    return values.copy() if isinstance(values, np.ndarray) and not values.flags.writeable else values


def as_tensor(values: Any, where: str, name: str) -> Tensor:
    try:
        return torch.as_tensor(writable(values))
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{where}: {name} cannot become a tensor of numbers ({reason}); turn it into numbers of equal shape, or "
            "leave it out (columns=…)"
        ) from error


def checked(content: NamedColumns, where: str) -> NamedColumns:
    """Columns with the types that models and losses take, and as many targets as inputs."""
    if not content.targets:
        raise DataError(f"{where}: the dictionary of its targets is empty")
    if any(column.dim() == 0 for column in content.targets.values()):
        raise DataError(f"{where}: the targets are one number, not one a sample")
    inputs = {
        name: column.float() if column.dtype == torch.float64 else column for name, column in content.inputs.items()
    }
    for name, column in (*inputs.items(), *list(content.targets.items())[1:]):
        if column.dim() == 0 or len(column) != content.samples:
            count = len(column) if column.dim() else "no"
            raise DataError(f"{where}: {count} {name or 'inputs'} but {content.samples} targets")
    if content.samples == 0:
        raise DataError(f"{where}: it has no samples; every node needs at least one")
    return NamedColumns(inputs, {name: as_target(column) for name, column in content.targets.items()})


def as_target(column: Tensor) -> Tensor:
    """Targets with the type that losses take."""
    if column.dtype == torch.float64 or (column.dtype == torch.bool and column.dim() > 1):
        return column.float()  # several yes-or-no labels a sample: what torch's losses for them take
    return column if column.is_floating_point() or column.is_complex() else column.long()


def joined(batches: Sequence[NamedColumns], where: str) -> NamedColumns:
    """Batches joined one after another."""
    first = batches[0]
    for side in range(2):
        if any(batch[side].keys() != first[side].keys() for batch in batches):
            raise DataError(f"{where}: its batches have different columns")
    try:
        return NamedColumns(
            *({name: torch.cat([batch[k][name] for batch in batches]) for name in first[k]} for k in range(2))
        )
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{where}: its batches have different shapes ({reason}); pad all samples alike") from error


# NaN and infinity in a node's data: where they are, found in one pass over what is in memory.

LOOKED_THROUGH = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # others have neither, or no extremes


class Gap(NamedTuple):
    """A column in which some numbers are none."""

    name: str  # of the column; "": the only inputs
    samples: Tensor  # numbers of those that have any, in order
    place: tuple[int, ...]  # of the first one, within its sample
    nan: bool  # whether that is NaN; else infinity

    def words(self, part: Part) -> str:
        """What a person is told about the gap."""
        what = "NaN" if self.nan else "infinity, or more than 32 bits hold,"
        within = f", column {self.place[0]}" if len(self.place) == 1 else f", at {self.place}" if self.place else ""
        first = f"first in sample {int(self.samples[0])}{within}"
        return f"{self.name or 'inputs'} have {what} in {len(self.samples)} of {len(part)} samples, {first}"


def gap_in(part: Part) -> Gap | None:
    """The first column with a gap; None where all is well, and for samples that are not in memory: they stay unread."""
    if not isinstance(part, InMemory):
        return None
    content: NamedColumns = part.content
    targets = ((named_target(name), column) for name, column in content.targets.items())
    for name, column in (*content.inputs.items(), *targets):
        if column.dtype in LOOKED_THROUGH and column.numel() and not all_finite(column):
            return found(name, column)
    return None


def named_target(name: str) -> str:
    """What a person calls a column of targets."""
    return f"targets {name}" if name else "targets"


def all_finite(column: Tensor) -> bool:
    """Looks at its extremes, which are NaN if anything is: one pass, and no copy, as `isfinite` would make."""
    return all(bool(torch.isfinite(extreme)) for extreme in torch.aminmax(column))


def found(name: str, column: Tensor) -> Gap:
    bad = ~torch.isfinite(column).reshape(len(column), -1)
    samples = bad.any(1).nonzero()[:, 0]
    first = column[samples[0]]
    place = torch.nonzero(~torch.isfinite(first))[0] if first.dim() else torch.zeros(0, dtype=torch.int64)
    at = tuple(int(index) for index in place)
    return Gap(name, samples, at, bool(torch.isnan(first[at])))
