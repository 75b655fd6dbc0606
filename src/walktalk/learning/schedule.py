"""The learning rate over a run: linear warm-up, then steps or a cosine, by the share of the run that is done."""

from __future__ import annotations

import math
from dataclasses import dataclass

from walktalk.errors import ModelError

FIRST_FACTOR = 0.01  # of the full rate, at the very start of a warm-up: a training with none at all would be wasted


@dataclass(frozen=True)
class Schedule:
    """The paper's (Tables 5 and 6): warm-up, then ×0.1 at 75 % and at 90 %."""

    warmup: float = 0.0  # share of the run in which the rate grows from (almost) nothing
    decay_at: tuple[float, ...] = ()  # shares of the run at which the rate is multiplied by `factor`
    factor: float = 0.1  # what the rate is multiplied by each time
    cosine_to: float | None = None  # in place of steps: the share of the rate that half a cosine wave leaves in the end

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < 1:
            raise ModelError(f"schedule.warmup: {self.warmup} is not possible; allowed: 0 to below 1")
        if not all(0 < at < 1 for at in self.decay_at) or list(self.decay_at) != sorted(set(self.decay_at)):
            raise ModelError(
                f"schedule.decay_at: {list(self.decay_at)} is not possible; rising numbers between 0 and 1"
            )
        if not 0 < self.factor <= 1:
            raise ModelError(f"schedule.factor: {self.factor} is not possible; allowed: above 0, at most 1")
        if self.cosine_to is not None and not 0 <= self.cosine_to <= 1:
            raise ModelError(f"schedule.cosine_to: {self.cosine_to} is not possible; allowed: 0 to 1")
        if self.cosine_to is not None and self.decay_at:
            raise ModelError("schedule.cosine_to: and decay_at exclude each other; leave one out")

    def factor_at(self, progress: float) -> float:
        """The factor on the learning rate at a progress from 0 to 1."""
        rate = self.factor ** sum(progress >= at for at in self.decay_at)
        if progress < self.warmup:
            rate *= max(progress / self.warmup, FIRST_FACTOR)
        elif self.cosine_to is not None:
            done = (progress - self.warmup) / (1.0 - self.warmup)
            rate = self.cosine_to + (1.0 - self.cosine_to) * (1.0 + math.cos(math.pi * done)) / 2.0
        return float(rate)
