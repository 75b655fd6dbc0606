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
from typing import NamedTuple, TypeAlias

from walktalk.protocols.mechanisms.tokens.hops import NO_TERM, Token
from walktalk.protocols.mechanisms.tokens.rule import share_of_a_walk

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
        """The mean of the exponential that the tail falls like, from walks that came back."""
        return self.tail_with(0.0)

    def tail_with(self, unfinished: float) -> float:
        """The mean of the exponential that the tail falls like; what is assumed weighs as much as one observation.

        Args:
            unfinished: For how long walks that are out now have been so, in sum. At first only short returns have been
                seen, because long ones take long: time out counts, though it has not ended (right-censored
                observations of an exponential: all time over the number of ends).
        """
        n = len(self.seen)
        if not n:
            return self.assumed + unfinished
        mean, square = self.mean, sum(t * t for t in self.seen) / n
        observed = max(mean + unfinished / n, square / (2 * mean) if mean > 0 else 0.0)
        return (self.assumed + n * observed) / (n + 1)

    def limit(self, chance: float, unfinished: float = 0.0) -> float:
        """How long no more than this share of walks stays away; few observations are not trusted."""
        return self.limits((chance,), unfinished)[chance]

    def limits(self, chances: tuple[float, ...], unfinished: float = 0.0) -> dict[float, float]:
        """How long no more than each of these shares stays away."""
        doubt, tail = 1.0 + 1.0 / math.sqrt(len(self.seen) + 1), self.tail_with(unfinished)
        return {chance: tail * math.log(1.0 / chance) * doubt for chance in chances}

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
        limits = self._limits(now)
        return sorted(walk for walk, left in self.away.items() if now >= left + limits[chance(walk, left)])

    def next_check(self, now: float, chance: Callable[[int, float], float]) -> float:
        """Seconds until a walk may be overdue; `chance` as above."""
        limits = self._limits(now)
        soonest = min((left + limits[chance(walk, left)] for walk, left in self.away.items()), default=math.inf)
        return max(soonest - now, 1e-3 * limits[RARELY]) if soonest < math.inf else limits[RARELY]

    def _limits(self, now: float) -> dict[float, float]:
        """How long a walk may be away, by how often a living one may be taken for lost."""
        out = sum(max(now - left, 0.0) for left in self.away.values())  # seconds of those that are out now, in sum
        return {0.0: math.inf} | self.times.limits((RARELY, HARDLY_EVER), out)


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
# they meet or where its ticket shows it (`mixing`). That stands for the terminations of DecAFork+
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


# -- Copies of walks that a node knows of, and what that says about one that arrives; what an aggregator did with copies
# | the node has | the walk is |
# | --- | --- |
# | seen a later ticket of the same term, or the walk under the present term while it is of another | retired |
# | or had the same walk, as far on its way or further | retired: it is a repetition, or a copy that lags behind |
# | the same walk, less far, in training | put aside; it goes on when that training ends, whose result is dropped |
# | the same walk, less far, sent and not yet acknowledged | accepted, and the old one forgotten: this is its return |
# | nothing of it, or another fork of its number and no aggregator has seen either | accepted |
#
# What came is remembered for a while only: a copy with a ticket that nobody wrote would otherwise be the latest for
# ever. That no update is counted twice is the aggregator's to see to, who knows its tickets.


@dataclass
class KnownCopies:
    """The copies of walks that one node has, or had a while ago."""

    here: dict[int, Token] = field(default_factory=dict)  # walks in training
    next: dict[int, Token] = field(default_factory=dict)  # walks that wait for the training of an older copy to end
    accepted: dict[int, Token] = field(default_factory=dict)  # the copy of each walk that came last
    term_id: tuple[int, int] = NO_TERM  # the present one, as far as is known here
    since: dict[int, float] = field(default_factory=dict)  # when each walk was here last
    seen: dict[int, int] = field(default_factory=dict)  # the highest ticket of each walk, of that term only

    def repeats(self, token: Token) -> bool:
        """Whether this very copy came before: its acknowledgement was lost or overtaken."""
        before = self.accepted.get(token.walk)
        return before is not None and before.place == token.place and related(token, before)

    def lags(self, token: Token, leaving: Token | None) -> bool:
        """Whether the node knows of a copy that is as far or further; `leaving`: one that it has just sent."""
        before, holding = self.accepted.get(token.walk), self.holding(token.walk, leaving)
        if (
            before is not None
            and before.term_id == token.term_id
            and not further(token, before)
            and related(token, before)
        ):
            return True
        return (holding is not None and not further(token, holding)) or self.is_stale(token)

    def holding(self, walk: int, leaving: Token | None) -> Token | None:
        """The copy of a walk that is here, in whatever state."""
        return self.next.get(walk) or self.here.get(walk) or leaving

    def accept(self, token: Token, now: float) -> None:
        """A copy has come and stays."""
        self.remember(token, now)
        self.accepted[token.walk] = token

    def remember(self, token: Token, now: float) -> None:
        """Remember that a copy with this ticket was seen."""
        self.since[token.walk] = now
        if token.term_id == self.term_id:
            self.seen[token.walk] = max(token.ticket, self.seen.get(token.walk, 0))

    def forget_old(self, now: float, age: float) -> None:
        """Forget which copies came of walks that have not been here for so long."""
        for walk in [walk for walk, since in self.since.items() if since < now - age]:
            for memory in (self.since, self.seen, self.accepted):
                memory.pop(walk, None)

    def new_term(self, term_id: tuple[int, int]) -> None:
        """Another node aggregates: tickets of earlier terms are forgotten."""
        self.term_id, self.seen = term_id, {}

    def is_stale(self, token: Token) -> bool:
        """Whether a later copy of the walk was seen under the present term."""
        if token.term_id == NO_TERM or token.walk not in self.seen:
            return False
        return token.term_id != self.term_id or token.ticket < self.seen[token.walk]


def related(token: Token, to: Token) -> bool:
    """Whether tickets and hops say which copy is the later; of two forks unknown to any aggregator they do not."""
    return token.term_id != NO_TERM or token.generation == to.generation


def further(token: Token, than: Token) -> bool:
    """Whether a copy is further on the same walk's way, or of another term, which its aggregator will judge."""
    if token.term_id != than.term_id:
        return token.term_id[0] >= than.term_id[0]
    return (token.ticket, token.hop) > (than.ticket, than.hop)


# -- what came to an aggregator ---------------------------------------------------------------------------------------
#
# A walk may be sent twice, since its receiver seemed dead, or because somebody lies, and be trained by both: a copy
# that comes after another, with a ticket that is used up, is averaged in by its updates among all that came since it
# left. Copies with one ticket are together no more of the mean than a walk is, and each takes half of what is left of
# that at most, so that forged ones leave something to others.

REMEMBERED = 4096  # tickets whose copies are known, of all walks together
COPIES = 16  # with one ticket that count: each has half of the share that is left
BACK = 64  # visits of a walk whose other copies are still welcome, if there are not too many walks

Key: TypeAlias = tuple[int, tuple[int, int], int]  # walk, term and ticket: what tells it from those of other times


class Arrived(NamedTuple):
    """Copies of a walk that came with one ticket."""

    since: int = 0  # updates that had come here when it left from here; 0 where it did not
    hops: tuple[int, ...] = ()  # of each that came: another with as many is the same
    share: float = 0.0  # of the mean that they had, but for the first of this term

    def takes(self, hop: int) -> bool:
        """Whether a copy with so many hops has not come yet, and not too many others have."""
        return hop not in self.hops and len(self.hops) < COPIES


class ArrivedCopies(dict[Key, Arrived]):
    """All copies that came in one term, by walk and ticket."""

    def of(self, token: Token) -> Arrived | None:
        """The copies that came with the same ticket; None where nothing is known of it."""
        return self.get(_key(token))

    def has_room(self, token: Token) -> bool:
        """Whether there is room to remember that this copy came."""
        return _key(token) in self or len(self) < REMEMBERED

    def leaves(self, token: Token, updates: int, walks: int) -> None:
        """A walk leaves with a new ticket, after so many updates; of one that is long used up no copy is taken."""
        self[_key(token)] = Arrived(updates)
        back = min(BACK, REMEMBERED // walks // 2) * walks
        self.pop(_key(token._replace(ticket=token.ticket - back)), None)

    def comes(self, token: Token, share: float = 0.0) -> None:
        """A copy has come, and has this share of the mean."""
        arrived = self.of(token) or Arrived()
        self[_key(token)] = arrived._replace(hops=(*arrived.hops, token.hop), share=arrived.share + share)

    def share(self, token: Token, learned: int, updates: int, walks: int) -> float:
        """The share of the mean for a copy that came beside others.

        Args:
            token: the copy.
            learned: how many updates it brings.
            updates: that have come to the aggregator.
            walks: R; copies with one ticket have 1/R together.
        """
        arrived = self.of(token) or Arrived()
        return min(learned / (updates - arrived.since + learned), (share_of_a_walk(walks) - arrived.share) / 2)


def _key(token: Token) -> Key:
    return token.walk, token.term_id, token.ticket
