"""The learning curve of one pilot: its loss so far, and where that leads.

Loss is looked at as progress, y = log of how many times smaller the excess over the lowest possible loss has become:
a straight line for a descent at constant pace, flat where noise or differences between nodes stop it.

A pilot is looked at in two ways. As a run is: at the evaluations of the study, the first of which with a loss of the
target or less is its arrival, since a run with that target stops there. And, since these may be few, at costs that rise
in small ratios: where it stands and how fast it is are read from those.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from math import exp, inf, isfinite, log
from typing import NamedTuple

import numpy as np

WINDOW = 0.75  # progress is averaged over the last quarter of the way: one lucky moment says little
LOOK_BACK = 0.45  # the pace is taken over the way since then: a shorter stretch is mostly noise
NOTHING_YET = 0.02  # progress below this is noise: the pilot has not said anything
NO_FURTHER = 0.01  # of all there is to gain: what is left of it at the lowest loss that seems possible
DIVERGED = 30.0  # times the excess of the start: nothing comes back from there


@dataclass(frozen=True)
class Scale:
    """What loss means: where it starts, the lowest there can be, and what is wanted."""

    start: float
    floor: float
    target: float

    def progress(self, loss: float) -> float:
        """y of a loss; minus infinity where it is not finite or has grown beyond recovery."""
        if not isfinite(loss):
            return -inf
        excess = max(loss - self.floor, 1e-9 * (self.start - self.floor))
        return log((self.start - self.floor) / excess)

    def excess(self, loss: float) -> float:
        """How far a loss is above the lowest; below that, which is only an estimate, hardly anything counts."""
        span = self.start - self.floor
        return max(loss - self.floor, NO_FURTHER * span) + 1e-9 * loss

    def loss(self, progress: float) -> float:
        """The loss that belongs to a progress y."""
        return self.floor + (self.start - self.floor) * exp(-progress)

    @property
    def goal(self) -> float:
        return self.progress(self.target)


class Seen(NamedTuple):
    """What an evaluation shows, as a row of a history does."""

    iterations: float
    time: float  # seconds
    bits: float
    loss: float

    def of(self, axis: str) -> float:
        """Its value on one axis, or its loss."""
        return float(getattr(self, axis))


@dataclass
class LearningCurve:
    """One run, measured at rising cost."""

    scale: Scale
    lag: float = 0.0  # cost by which the aggregated model is behind the models that walk
    settled: float = 0.0  # cost before which it says little: a walk has seen only a few nodes' data
    to_the_target: bool = True  # whether the target ends it, or only its budget does
    cost: list[float] = field(default_factory=list)  # in the objective's unit
    loss: list[float] = field(default_factory=list)  # of the aggregated model
    mean_loss: list[float] = field(default_factory=list)  # of the mean of all models
    seen: list[Seen] = field(default_factory=list)  # the evaluations that a run has
    arrival: Seen | None = None  # the first that showed the target: a run would stop there
    arrived: float | None = None  # its cost

    def add(self, cost: float, loss: float, mean_loss: float) -> None:
        """One more measurement between the evaluations."""
        self.cost.append(cost)
        self.loss.append(loss)
        self.mean_loss.append(mean_loss)

    def evaluated(self, seen: Seen, objective: str) -> None:
        """One more evaluation, as a run has it."""
        self.seen.append(seen)
        if self.to_the_target and self.arrival is None and seen.loss <= self.scale.target:
            self.arrival, self.arrived = seen, seen.of(objective)

    def aim(self, scale: Scale, objective: str) -> None:
        """Another target, which it may have shown already.

        Args:
            scale: With that target.
            objective: The axis of costs.
        """
        self.scale = scale
        self.arrival = next((one for one in self.seen if one.loss <= scale.target), None)
        self.arrived = None if self.arrival is None else self.arrival.of(objective)

    @property
    def lately(self) -> float:
        """The loss over the last quarter of its evaluations; infinity where there is none, or it is no number."""
        last = [one.loss for one in self.seen[-max(1, len(self.seen) // 4) :]]
        return float(np.mean(last)) if last and all(map(isfinite, last)) else inf

    @property
    def at(self) -> float:
        """The cost spent so far, in the unit of the objective."""
        return self.cost[-1] if self.cost else 0.0

    @property
    def final_loss(self) -> float:
        """The loss at the last evaluation, which a run has when its budget is spent; infinity where it is no number."""
        loss = self.seen[-1].loss if self.seen else inf
        return loss if isfinite(loss) else inf

    @property
    def lost(self) -> bool:
        """Whether the run has diverged: its loss is not finite, or far above that of the start."""
        return bool(self.loss) and self.scale.progress(self.mean_loss[-1]) < -log(DIVERGED)

    def smooth(self, values: list[float], upto: int) -> tuple[float, float]:
        """Progress over the last quarter of the way up to a measurement, and the cost in the middle of that quarter."""
        first = bisect_left(self.cost, WINDOW * self.cost[upto], 0, upto + 1)
        part = range(first, upto + 1)
        return float(np.mean([self.scale.progress(values[k]) for k in part])), float(
            np.mean([self.cost[k] for k in part])
        )

    def pace(self) -> tuple[float, float, float]:
        """Progress of late, the cost at which it was that, and progress per cost over the last half of the way.

        Until a walk has come back often, the aggregated model says little; then the mean of the walks is looked at.
        """
        values = self.loss if self.at > 4 * self.lag else self.mean_loss
        last = len(self.cost) - 1
        half = min(bisect_left(self.cost, LOOK_BACK * self.at), last - 1)
        now, here = self.smooth(values, last)
        then, there = self.smooth(values, half) if half > 0 else (0.0, 0.0)
        if not (isfinite(now) and isfinite(then)) or here <= there:
            return now, here, -inf
        return now, here, (now - then) / (here - there)

    @property
    def progress(self) -> float:
        """Progress over the last quarter of the way."""
        return self.pace()[0]

    def expected_cost(self) -> float:
        """The cost at which the target will be reached if it goes on as over the last half of the way."""
        if self.arrived is not None:
            return self.arrived
        if self.lost or len(self.cost) < 3:
            return inf
        progress, here, pace = self.pace()
        return inf if pace <= 0 else max(self.at, here + (self.scale.goal - progress) / pace + self.behind)

    def expected_loss(self, budget: float) -> float:
        """The loss when the budget is spent, if it goes on as over the last half of the way."""
        if self.lost or len(self.cost) < 3:
            return inf
        if self.at >= budget and self.seen:
            return self.final_loss
        progress, here, pace = self.pace()
        if not isfinite(pace):
            return inf
        left = max(0.0, budget - here - self.behind)
        return self.scale.loss(progress + max(pace, 0.0) * left)

    @property
    def behind(self) -> float:
        """What is to be added where the pace is that of the walks, and the aggregator has to hear of it yet."""
        return self.lag if self.at <= 4 * self.lag else 0.0

    @property
    def silent(self) -> bool:
        """Whether the run has hardly moved yet, so that nothing can be told from it."""
        return len(self.cost) < 3 or self.at < self.settled or abs(self.progress) < NOTHING_YET
