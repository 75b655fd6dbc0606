"""Adaptive time-outs: how long a silence may last, learned from the intervals that were observed.

Mean and mean deviation are kept as running averages (Jacobson 1988, as TCP does for its own time-out). A silence is
suspicious when it is longer than the mean by seven deviations, which for a normal distribution is the φ = 8 of
accrual failure detectors (Hayashibara et al. 2004): one false alarm in 10⁸ intervals. It is never less than four
intervals, because a perfectly regular past says nothing about the future.
"""

from __future__ import annotations

from dataclasses import dataclass, field

DEVIATIONS = 7.0  # of the mean absolute deviation, 0.8 σ: φ = 8
INTERVALS = 4.0  # the least patience, in intervals
MOST_DOUBLINGS = 6  # of the patience, for one who asks again and again
WEIGHT = 1 / 8  # of the newest observation in the averages, as in TCP


@dataclass
class Arrivals:
    """When something came, and how long one may wait for it to come again."""

    expected: float  # the interval that the sender is known to keep when all is well
    last: float  # when it came last, or when the waiting begins
    mean: float = field(init=False)
    deviation: float = field(init=False)

    def __post_init__(self) -> None:
        self.mean, self.deviation = self.expected, self.expected / 2

    def arrived(self, now: float) -> None:
        """It came again; before the waiting began there is nothing to learn from it."""
        if now > self.last:
            self.observe(now - self.last)
        self.last = now

    def observe(self, interval: float) -> None:
        """An interval of this length was seen."""
        self.deviation += WEIGHT * (abs(interval - self.mean) - self.deviation)
        self.mean += WEIGHT * (interval - self.mean)

    @property
    def patience(self) -> float:
        """The longest silence that says nothing."""
        return max(self.mean + DEVIATIONS * self.deviation, INTERVALS * max(self.mean, self.expected))

    def deadline(self) -> float:
        """When the present silence becomes suspicious."""
        return self.last + self.patience

    def overdue(self, now: float) -> bool:
        """Whether the present silence is too long."""
        return now >= self.deadline()
