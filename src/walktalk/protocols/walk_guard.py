"""Walks that are lost with their nodes, noticed from the distribution of return times.

A walk is overdue when a living one would have come back by then but for one time in a thousand. The tail of a return
time falls exponentially, with a mean of about E[h²] / (2 E[h]), the mean age of an excursion (`chains.return_time`):
about V on a complete graph, V²/6 on a cycle. Both moments are measured, so the guard fits the graph, the speed of the
nodes and the links by itself, and whatever is left of the graph after failures.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

RARELY = 1e-3  # how often a living walk is given up: it costs the updates of one excursion, no more
WINDOW = 200  # return times that are remembered
PRIOR = 4.0  # until there are some: a tail that many times as long as V steps; between a complete graph and a cycle


@dataclass
class ReturnTimes:
    """Observed return times of walks to one node."""

    assumed: float  # the tail's mean before anything is observed
    seen: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def observe(self, seconds: float) -> None:
        """A walk came back after that long."""
        self.seen.append(seconds)

    @property
    def mean(self) -> float:
        """The mean return time, where one was observed."""
        return sum(self.seen) / len(self.seen) if self.seen else math.nan

    @property
    def tail(self) -> float:
        """The mean of the exponential that the tail falls like; what is assumed weighs as much as one observation."""
        n = len(self.seen)
        if not n:
            return self.assumed
        mean, square = self.mean, sum(t * t for t in self.seen) / n
        observed = max(mean, square / (2 * mean) if mean > 0 else 0.0)
        return (self.assumed + n * observed) / (n + 1)

    @property
    def limit(self) -> float:
        """How long to wait for a walk. Few observations are not trusted: the tail may be longer than they show."""
        doubt = 1.0 + 2.0 / math.sqrt(len(self.seen) + 1)
        return self.tail * math.log(1.0 / RARELY) * doubt

    def survival(self, age: float) -> float:
        """The share of return times that are longer than this; 1 where nothing is known."""
        return sum(t > age for t in self.seen) / len(self.seen) if self.seen else 1.0


@dataclass
class Guard:
    """The aggregator's: when each walk left, and which are overdue."""

    times: ReturnTimes
    away: dict[int, float] = field(default_factory=dict)  # walk -> when it left

    def leaves(self, walk: int, now: float) -> None:
        """A walk goes out, or is awaited from now on."""
        self.away[walk] = now

    def returns(self, walk: int, now: float) -> None:
        """A walk is back."""
        if walk in self.away:
            self.times.observe(now - self.away.pop(walk))

    def overdue(self, now: float) -> list[int]:
        """Walks that must be lost."""
        limit = self.times.limit
        return sorted(walk for walk, left in self.away.items() if now - left >= limit)

    def next_check(self, now: float) -> float:
        """Seconds until one may be overdue."""
        limit = self.times.limit
        return max(min((left + limit - now for left in self.away.values()), default=limit), 1e-3 * limit)


@dataclass
class Headcount:
    """Any node's, after "Self-Regulating Random Walks" (Egger et al. 2024): how many walks are alive?

    A living walk was seen here some time ago that is distributed like the residual of its return time, so the share
    S(age) of return times that are longer is uniform on [0, 1], and one half on average; a dead one's goes to 0. The
    sum over all walks estimates half their number. Below `FEW` times what it should be, the node forks the walk that is
    visiting, with probability 1/R, so that not all nodes do so at once. Too many show themselves by their tickets.
    """

    walks: int
    times: ReturnTimes
    last: dict[int, float] = field(default_factory=dict)

    FEW = 0.6  # of R/2

    def visits(self, walk: int, now: float) -> None:
        """A walk is here."""
        if walk in self.last:
            self.times.observe(now - self.last[walk])
        self.last[walk] = now

    def estimate(self, visiting: int, now: float) -> float:
        """Half the number of living walks; the visiting one counts one half for certain."""
        return 0.5 + sum(self.times.survival(now - seen) for walk, seen in self.last.items() if walk != visiting)

    def missing(self, visiting: int, now: float) -> int | None:
        """The walk that is most surely dead, where too few seem to be alive and enough is known to say so."""
        if len(self.times.seen) < 2 * self.walks or self.estimate(visiting, now) >= self.FEW * self.walks / 2:
            return None
        ages = {walk: now - self.last.get(walk, -math.inf) for walk in self.everyone() if walk != visiting}
        return max(ages, key=lambda walk: (ages[walk], -walk)) if ages else None

    def forked(self, walk: int, now: float) -> None:
        """A replacement goes out: it counts as seen now."""
        self.last[walk] = now

    def everyone(self) -> Iterable[int]:
        """All walks that there should be."""
        return range(1, self.walks + 1)
