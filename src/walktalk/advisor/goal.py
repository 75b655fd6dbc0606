"""What the person wants: the cheapest way to a loss, or the lowest loss for a budget."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal, get_args

from walktalk.errors import SpecError

Objective = Literal["iterations", "time", "bits"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


@dataclass(frozen=True)
class Goal:
    """Reach `target_loss` at the least cost; or, with a budget, the lowest loss within it."""

    objective: Objective = "time"  # what to save: iterations, time or bits
    target_loss: float | None = None  # None: chosen from the task, see `advise`
    budget: float | None = None  # iterations, seconds or bits

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise SpecError(f"objective: {self.objective!r} is unknown; allowed: {', '.join(OBJECTIVES)}")
        if self.budget is not None and not (isfinite(self.budget) and self.budget > 0):
            raise SpecError(f"budget: {self.budget} is not possible; a number above 0 is needed")
        if self.target_loss is not None and not isfinite(self.target_loss):
            raise SpecError(f"target_loss: {self.target_loss} is not possible; a finite number is needed")
