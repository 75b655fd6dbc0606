"""When a run ends, when and what of it is measured, and where optimizer states live: the same in every runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from walktalk.core.errors import SpecError

EvaluatedModel: TypeAlias = Literal["aggregated", "mean", "node"]
OptimizerState: TypeAlias = Literal["visit", "walk", "node"]


@dataclass(frozen=True)
class Stop:
    """When a run ends: at the first of these that is met."""

    iterations: int | None = None  # local trainings completed, over all nodes
    time: float | None = None  # seconds of virtual time
    bits: float | None = None  # sent between nodes
    target_loss: float | None = None  # of the aggregated model, seen at an evaluation
    target_accuracy: float | None = None  # on the test samples, likewise; from 0 to 1
    patience: int | None = None  # evaluations in a row without a lower loss: on test samples, where there are any

    def __post_init__(self) -> None:
        for name in ("iterations", "time", "bits", "patience"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SpecError(f"stop.{name}: {value} is not possible; a number above 0 is needed")
        if self.iterations is None and self.time is None and self.bits is None:
            raise SpecError("stop: at least one of iterations, time, bits is needed, or the run would never end")

    def progress(self, iteration: int, time: float, bits: float) -> float:
        """The share of the run that is done: 0 at the start, 1 at the end."""
        done = 0.0
        if self.iterations is not None:
            done = iteration / self.iterations
        if self.time is not None:
            done = max(done, time / self.time)
        if self.bits is not None:
            done = max(done, bits / self.bits)
        return min(done, 1.0)


@dataclass(frozen=True)
class Evaluate:
    """When a run is measured: at the start, at the end, and every so often between."""

    every: int | None = 100  # iterations
    seconds: float | None = None  # of virtual time
    model: EvaluatedModel = "aggregated"  # which model is measured
    members: bool = False  # whether every member's model is measured, too: worst, mean and spread

    def __post_init__(self) -> None:
        for name in ("every", "seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SpecError(f"evaluate.{name}: {value} is not possible; a number above 0 is needed")
