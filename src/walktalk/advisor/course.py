"""The course of one pilot: its loss so far, and where that leads.

Loss is looked at as progress, y = log of how many times smaller the excess over the lowest possible loss has become:
a straight line for a descent at constant pace, flat where noise or differences between nodes stop it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from math import inf, isfinite, log

import numpy as np

WINDOW = 0.75  # loss is averaged over the last quarter of the way: one lucky moment is not arrival
LOOK_BACK = 0.45  # the pace is taken over the way since then: a shorter stretch is mostly noise
NOTHING_YET = 0.02  # progress below this is noise: the pilot has not said anything
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

    @property
    def goal(self) -> float:
        return self.progress(self.target)


@dataclass
class Course:
    """One run, measured at rising cost."""

    scale: Scale
    lag: float = 0.0  # cost by which the aggregated model is behind the models that walk
    settled: float = 0.0  # cost before which it says little: a walk has seen only a few nodes' data
    cost: list[float] = field(default_factory=list)  # in the objective's unit
    iteration: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    bits: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)  # of the aggregated model
    mean_loss: list[float] = field(default_factory=list)  # of the mean of all models
    arrived: float | None = None  # the cost at which the target was reached

    def add(self, cost: float, where: tuple[int, float, float], loss: float, mean_loss: float) -> None:
        """One more measurement."""
        self.cost.append(cost)
        self.iteration.append(where[0])
        self.seconds.append(where[1])
        self.bits.append(where[2])
        self.loss.append(loss)
        self.mean_loss.append(mean_loss)
        if self.arrived is None and len(self.cost) > 1:
            self.arrived = self._arrival()

    @property
    def at(self) -> float:
        """The cost spent so far."""
        return self.cost[-1] if self.cost else 0.0

    @property
    def lost(self) -> bool:
        """Whether it has diverged."""
        return bool(self.loss) and self.scale.progress(self.mean_loss[-1]) < -log(DIVERGED)

    def smooth(self, values: list[float], upto: int) -> float:
        """The mean over the last quarter of the way up to a measurement."""
        first = bisect_left(self.cost, WINDOW * self.cost[upto], 0, upto + 1)
        return float(np.mean(values[first : upto + 1]))

    def _arrival(self) -> float | None:
        last = len(self.cost) - 1
        now = self.smooth(self.loss, last)
        if not now <= self.scale.target:
            return None
        before = self.smooth(self.loss, last - 1)
        if not isfinite(before) or before <= now:
            return self.cost[last]
        share = min(1.0, max(0.0, (before - self.scale.target) / (before - now)))
        return self.cost[last - 1] + share * (self.cost[last] - self.cost[last - 1])

    def pace(self) -> tuple[float, float]:
        """Progress so far, and progress per cost over the last half of the way.

        Until a walk has come back often, the aggregated model says little; then the mean of the walks is looked at.
        """
        values = self.loss if self.at > 4 * self.lag else self.mean_loss
        last = len(self.cost) - 1
        half = min(bisect_left(self.cost, LOOK_BACK * self.at), last - 1)
        now = self.scale.progress(self.smooth(values, last))
        then = self.scale.progress(self.smooth(values, half)) if half > 0 else 0.0
        way = self.cost[last] - self.cost[max(half, 0)]
        if not (isfinite(now) and isfinite(then)) or way <= 0:
            return now, -inf
        return now, (now - then) / way

    def expected_cost(self) -> float:
        """The cost at which the target will be reached if it goes on as over the last half of the way."""
        if self.arrived is not None:
            return self.arrived
        if self.lost or len(self.cost) < 3:
            return inf
        progress, pace = self.pace()
        if pace <= 0:
            return inf
        behind = self.lag if self.at <= 4 * self.lag else 0.0
        return max(self.at, self.at + (self.scale.goal - progress) / pace + behind)

    def expected_loss(self, budget: float) -> float:
        """The loss when the budget is spent, if it goes on as over the last half of the way."""
        if self.lost or len(self.cost) < 3:
            return inf
        progress, pace = self.pace()
        if not isfinite(pace):
            return inf
        behind = self.lag if self.at <= 4 * self.lag else 0.0
        left = max(0.0, budget - self.at - behind)
        scale = self.scale
        return scale.floor + (scale.start - scale.floor) * float(np.exp(-(progress + max(pace, 0.0) * left)))

    @property
    def silent(self) -> bool:
        """Whether it has not said anything yet."""
        return len(self.cost) < 3 or self.at < self.settled or abs(self.pace()[0]) < NOTHING_YET
