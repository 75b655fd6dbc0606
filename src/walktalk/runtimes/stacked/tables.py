"""What the steps of a plan need to know, on the device before the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from walktalk.runtimes.stacked.waves import CombineStep, Step, TrainStep


class Wave(NamedTuple):
    """The tables of one wave, on the device."""

    sources: Tensor
    outs: Tensor
    parts: Tensor
    keys: Tensor
    lrs: Tensor
    states_in: Tensor
    states_out: Tensor
    corrections: Tensor  # empty, where there are none


class Combination(NamedTuple):
    """The tables of one level of combinations, on the device."""

    outs: Tensor
    sources: Tensor
    weights: Tensor
    starts: Tensor
    statistics: Tensor
    parts: Tensor


class Tables:
    """The row numbers, keys and weights of a whole plan, sent to the device once and read off in order."""

    def __init__(self, steps: list[Step], device: torch.device) -> None:
        self.device = device
        training = [step for step in steps if isinstance(step, TrainStep)]
        combining = [step for step in steps if isinstance(step, CombineStep)]
        self.waves = map(Wave._make, zip(*(self.table(training, name) for name in Wave._fields), strict=True))
        self.combinations = map(
            Combination._make, zip(*(self.table(combining, name) for name in Combination._fields), strict=True)
        )

    def table(self, steps: Sequence[Step], name: str) -> Sequence[Tensor]:
        """One column of all these steps, cut into steps again once it is on the device."""
        lists = [getattr(step, name) for step in steps]
        kind = np.float32 if name in ("lrs", "weights", "statistics") else np.int64
        column = torch.from_numpy(np.fromiter(chain.from_iterable(lists), kind)).to(self.device)
        parts: Sequence[Tensor] = column.split([len(numbers) for numbers in lists])
        return parts
