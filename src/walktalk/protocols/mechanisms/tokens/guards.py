"""Walks that are lost with their nodes, noticed from the distribution of return times.

Nodes tell each other which walks they have (`sightings`), and whatever nobody has is lost. This is for what that cannot
say in time. A walk is overdue when a living one would have come back by then but for one time in a hundred, if a node
is known to have failed since it left and since it was last seen (one of V has failed: it may well have been there), and
but for one time in a million, if none is and nobody has seen it yet. A new aggregator owes its election to a failure,
so it begins with the shorter patience. The tail of a return time falls exponentially, with a mean of about E[h²] / (2
E[h]), the mean age of an excursion (`chains.return_time`): about V on a complete graph, V²/6 on a cycle. Both moments
are measured, so the guard fits the graph, the speed of the nodes and the links by itself, and whatever is left of the
graph after failures. Every node measures the return times to itself, so that one that is elected knows them already.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

RARELY = 1e-2  # how often a living walk is given up after a failure: it costs the updates of one excursion, no more
HARDLY_EVER = 1e-6  # and when no failure is known of
WINDOW = 200  # return times that are remembered
PRIOR = 2.0  # until there are some: a tail that many times as long as V visits; between a complete graph and a cycle


@dataclass
class ReturnTimes:
    """Observed return times of walks to one node."""

    assumed: float  # the tail's mean before anything is observed
    pace: float = 0.0  # seconds of a visit to this node; 0 while there was none
    seen: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    left: dict[int, tuple[float, object]] = field(default_factory=dict)  # walk -> when it was here, in which life of it

    def visit(self, walk: int, life: object, now: float) -> None:
        """A walk visits; the time since its last visit counts, unless it was started again meanwhile."""
        before = self.left.get(walk)
        if before is not None and before[1] == life:
            self.seen.append(now - before[0])
        self.left[walk] = (now, life)

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

    def limit(self, chance: float) -> float:
        """How long no more than this share of walks stays away; few observations are not trusted."""
        doubt = 1.0 + 1.0 / math.sqrt(len(self.seen) + 1)
        return self.tail * math.log(1.0 / chance) * doubt

    def survival(self, age: float) -> float:
        """The chance that a living walk was seen last so long ago or longer, at a moment that knows nothing of it.

        Such a moment falls into long excursions more often than into short ones, so this is not the share of return
        times above the age but that of the time that lies beyond it: the sum of (h − age)⁺ over the sum of h. Return
        times come in clusters of short ones on most graphs, and there the two are far apart. What is assumed of the
        tail counts as one observation more, so that an age beyond all others is not impossible.
        """
        tail = self.tail
        beyond = sum(t - age for t in self.seen if t > age) + tail * math.exp(-age / tail)
        return beyond / (sum(self.seen) + tail)


@dataclass
class Guard:
    """Remembers for the aggregator when each walk left, and says which are overdue."""

    times: ReturnTimes
    away: dict[int, float] = field(default_factory=dict)  # walk -> when it left

    def leaves(self, walk: int, now: float) -> None:
        """A walk goes out, or is expected from now on."""
        self.away[walk] = now

    def overdue(self, now: float, chance: Callable[[int, float], float]) -> list[int]:
        """Walks that have been away for so long that they must be lost.

        chance: of a walk, and when it left: how often a living one may be taken for lost; 0 if never.
        """
        return sorted(walk for walk, due in self._due(chance).items() if now >= due)

    def next_check(self, now: float, chance: Callable[[int, float], float]) -> float:
        """Seconds until a walk may be overdue; `chance` as above."""
        limit = self.times.limit(RARELY)
        soonest = min(self._due(chance).values(), default=math.inf)
        return max(soonest - now, 1e-3 * limit) if soonest < math.inf else limit

    def _due(self, chance: Callable[[int, float], float]) -> dict[int, float]:
        limits = {0.0: math.inf} | {rare: self.times.limit(rare) for rare in (RARELY, HARDLY_EVER)}
        return {walk: left + limits[chance(walk, left)] for walk, left in self.away.items()}


ENOUGH = 40  # return times that must be known before their distribution is trusted to the fourth decimal
FALSE_FORKS = 1e-4  # of visits, at which all walks live and the estimate is below ε; the paper's ε = 2 for 10 walks


@dataclass
class Headcount:
    """Estimates how many walks are alive, after DecAFork, "Self-Regulating Random Walks" (Egger et al. 2024).

    When a walk visits, each other living walk was seen here some time ago, and the chance S of that age or a longer one
    is uniform on [0, 1]; a dead one's goes to 0. So one half and the sum of these estimate half the number of walks.
    Where the sum is below ε, the node forks the visiting walk with probability 1/R, so that not all nodes do so at
    once. ε is such that R − 1 living walks fall below it with probability `FALSE_FORKS` (Irwin–Hall: at most εⁿ/n!).

    What differs from the paper: S is that of ages, not of return times (`ReturnTimes.survival`), so that the estimate
    is right where return times are not exponential. A fork takes the number of the walk that is missed most, so too
    many walks are not estimated, as in DecAFork+, but recognized: of two walks with one number the one that is behind
    is retired where they meet, or where its ticket shows that the other was at the aggregator since.
    """

    walks: int
    times: ReturnTimes  # to this node

    def estimate(self, visiting: int, now: float) -> float:
        """Half the number of living walks; the visiting one counts one half for certain."""
        return 0.5 + sum(self.times.survival(now - when) for walk, when in self._last() if walk != visiting)

    @property
    def few(self) -> float:
        """½ + ε: an estimate that is hardly ever so low while all walks live."""
        others = self.walks - 1
        return 0.5 + (FALSE_FORKS * math.factorial(others)) ** (1.0 / others) if others else 0.0

    def missing(self, visiting: int, now: float) -> int | None:
        """The walk that is most surely dead, where too few seem to be alive and enough is known to say so."""
        if len(self.times.seen) < ENOUGH or self.estimate(visiting, now) >= self.few:
            return None
        last = dict(self._last())
        others = [walk for walk in range(1, self.walks + 1) if walk != visiting]
        return min(others, key=lambda walk: (last.get(walk, -math.inf), walk)) if others else None

    def _last(self) -> list[tuple[int, float]]:
        return [(walk, when) for walk, (when, _) in self.times.left.items()]


# -- guards against a node that swallows walks ------------------------------------------------------------------------
#
# Two ways for a node to see that walks are missing, by its own clock alone: nobody tells it anything, so nobody can
# lie.
#
# - Average crossing (Chen, Parag, Bhagat, Liu, El Rouayheb, "Random walk learning and the Pac-Man attack", 2025): a
#   walk visits, and the last visit of any walk is longer ago than A. Then, with probability q, the walk is doubled.
#   If all walks are gone it is too late.
# - Create if late (the same, "Self-creating random walks for decentralized learning under Pac-Man attacks", 2026):
#   the last visit of any walk is longer ago than A. Then, with probability q, the node begins one with the model that
#   it saw last, and waits for A again. Walks cannot die out.
#
# The abstracts were read; the rules are from memory of the papers, which leave A and q to the user. Here they follow
# from R: a node is visited about every V s / R seconds, s what one visit takes. With n walks a gap is longer than A
# in a share exp(−A n / (V s)) of all visits, and each of them begets q; a node that swallows all that comes takes one
# visit in V. So births and deaths balance at n = (V s / A) ln(qV), which is R for A = (V s / R) ln(qV). While nothing
# is swallowed births go on until there are so many walks that they are rare; so they have numbers from 1 to R: a new
# one takes the number that the node misses most, and of two with one number the one that is behind is retired where
# they meet or where its ticket shows it (`copies`, `mixing`). That stands for the terminations of DecAFork+
# (Egger et al. 2024).

LATE = "late"  # timer: no walk has been here for too long
FEWEST_BIRTHS = 3.0  # qV at least: ln(qV) is above 1, so that births outweigh deaths when there are few walks


@dataclass
class Lateness:
    """Remembers when a walk was here last, and how long that may be ago."""

    nodes: int  # V
    walks: int  # R
    last: float = 0.0  # when any walk was here

    @property
    def births(self) -> float:
        """How many walks are begun when all nodes miss them at once, qV; R at most."""
        return min(max(float(self.walks), FEWEST_BIRTHS), float(self.nodes))

    @property
    def chance(self) -> float:
        """The chance q that a walk is begun when the last visit is too long ago."""
        return self.births / self.nodes

    def limit(self, visit: float) -> float:
        """The limit A for the time since the last visit, where a visit takes so many seconds."""
        return self.nodes * visit / self.walks * max(math.log(self.births), 1.0)

    def crossed(self, now: float, visit: float) -> bool:
        """A walk visits; returns whether the visit before it is too long ago."""
        before, self.last = self.last, now
        return now - before > self.limit(visit)

    def bears(self, random: Random) -> bool:
        """Whether a walk is begun now, by chance."""
        return random.random() < self.chance
