"""How long trainings usually take at one node, and from when on one of them hangs.

A GPU is gone, a mount does not answer, a data loader waits for ever: the node talks, and trains no more. So a training
that lasts many times as long as is usual there counts as one that hangs, in both runtimes: walks that wait for it, and
the one in it, are handed on as they came; what comes of it after all is dropped where it was a walk's, and counts once
where it was the node's own. A false alarm costs one result, so the limit is generous, most of all for the first one.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST = 1800.0  # seconds that the first training of a life may take: nothing is known yet, and code is compiled
LEAST = 10.0  # seconds in which no training hangs
DEVIATIONS = 20.0  # mean deviations above the mean, in which none does
TIMES = 12.0  # the mean: as many a training may take where all took the same until now
WEIGHT = 1 / 8  # of the newest in the averages
WAITING = 0.25  # of the usual, for which a walk stays at a node whose training hangs


@dataclass
class UsualTraining:
    """Learns how long trainings take at one node."""

    first: float = FIRST
    mean: float | None = None  # seconds; None before the first
    deviation: float = 0.0

    def observe(self, seconds: float) -> None:
        """A training has ended that took so long."""
        if self.mean is None:
            self.mean, self.deviation = seconds, seconds / 2
            return
        self.deviation += WEIGHT * (abs(seconds - self.mean) - self.deviation)
        self.mean += WEIGHT * (seconds - self.mean)

    @property
    def limit(self) -> float:
        """Seconds without progress after which a training hangs."""
        if self.mean is None:
            return self.first
        return max(LEAST, TIMES * self.mean, self.mean + DEVIATIONS * self.deviation)

    @property
    def stay(self) -> float:
        """Seconds that a walk stays where trainings hang, before it is handed on: or it would only run about."""
        return WAITING * (self.mean or 1.0)
