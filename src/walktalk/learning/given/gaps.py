"""NaN and infinity in a node's data: where they are, found in one pass over what is in memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from walktalk.learning.given.part import Given, InMemory, Part

LOOKED_THROUGH = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # others have neither, or no extremes


class Gap(NamedTuple):
    """A column in which some numbers are none."""

    name: str  # of the column; "": the only inputs
    samples: Tensor  # numbers of those that have any, in order
    place: tuple[int, ...]  # of the first one, within its sample
    nan: bool  # whether that is NaN; else infinity

    def words(self, part: Part) -> str:
        """What a person is told."""
        what = "NaN" if self.nan else "infinity, or more than 32 bits hold,"
        within = f", column {self.place[0]}" if len(self.place) == 1 else f", at {self.place}" if self.place else ""
        first = f"first in sample {int(self.samples[0])}{within}"
        return f"{self.name or 'inputs'} have {what} in {len(self.samples)} of {len(part)} samples, {first}"


def gap_in(part: Part) -> Gap | None:
    """The first column with any; None where all is well, and for samples that are not in memory: they stay unread."""
    if not isinstance(part, InMemory):
        return None
    given: Given = part.given
    targets = ((named_target(name), column) for name, column in given.targets.items())
    for name, column in (*given.inputs.items(), *targets):
        if column.dtype in LOOKED_THROUGH and column.numel() and not all_finite(column):
            return found(name, column)
    return None


def named_target(name: str) -> str:
    """What a person calls a column of targets."""
    return f"targets {name}" if name else "targets"


def all_finite(column: Tensor) -> bool:
    """By its extremes, which are NaN if anything is: one pass, and no copy, as `isfinite` would make."""
    return all(bool(torch.isfinite(extreme)) for extreme in torch.aminmax(column))


def found(name: str, column: Tensor) -> Gap:
    bad = ~torch.isfinite(column).reshape(len(column), -1)
    samples = bad.any(1).nonzero()[:, 0]
    first = column[samples[0]]
    place = torch.nonzero(~torch.isfinite(first))[0] if first.dim() else torch.zeros(0, dtype=torch.int64)
    at = tuple(int(index) for index in place)
    return Gap(name, samples, at, bool(torch.isnan(first[at])))
