"""Which pilot goes on: the one that promises most, until nobody who waits could still be better.

First those that theory does not rule out go together until the leader has said something. Then, again and again, the
few with the best prospects are taken a step further; the others wait where they are, or have not even started. A leader
that stalls loses its prospects and those who waited are taken up, so an early start that leads nowhere is found out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from typing import TypeAlias

from walktalk.advisor.course import NOTHING_YET, Course
from walktalk.advisor.pilots import Entry, Pilots

PLAUSIBLE = 6.0  # times the best promise of theory: the others need not start until the better ones have failed
SAID = 0.06  # of the whole way in progress: the leader has said something
OPENING = 1.3  # from one cost to the next while all go together
STEP = 1.35  # from one cost to the next in the race
CLOSE = 1.15  # prospects within this of the best are taken further together
WORTH = 0.93  # of what is certain: who promises less than 7 % better is not worth the trainings
FAR = 10.0  # times the best prospect: those that promise less are not run to the end even where that is cheap
AT_ONCE = 6  # at most so many
RACE_SHARE = 0.7  # of a progress bar; the finalists have the rest
STALLED = 0.35  # of its mean pace so far: the least that is expected of a pilot, so that nobody waits for ever


Told: TypeAlias = Callable[[str, float], None]  # what is being done, and the share of all that is done


@dataclass(frozen=True)
class Limits:
    """When to give up."""

    trainings: float = inf  # of all pilots together
    cost: float = inf  # of one pilot


class Race:
    """The first repetition of every candidate, against each other."""

    def __init__(self, pilots: Pilots, limits: Limits, budget: float | None, told: Told) -> None:
        self.pilots = pilots
        self.limits = limits
        self.budget = budget  # then the lowest loss at that cost wins; else the first at the target
        self.told = told
        self.opened = pilots.bench.unit  # the cost up to which the plausible ones went together

    def run(self) -> None:
        """To the end: afterwards `prospects` are what they will be."""
        self.open()
        while chosen := self.choose():
            ahead = self.pilots.entries[chosen[0]].candidate.label
            self.told(
                f"{len(self.pilots.courses)} pilots, {len(chosen)} go on, ahead: {ahead}", RACE_SHARE * self.way()
            )
            # Together up to the nearest of their next stops: those of about the same cost share waves.
            self.pilots.climb(chosen, min(self.end(), *(self.next_stop(p) for p in chosen)))

    def complete(self, trainings: float) -> None:
        """Whoever may still be near to where the first arrived, or to the budget, if that takes no more trainings.

        A pilot that was left early for another that was lucky is misjudged; where runs are cheap they are made.
        """
        objective, end, prospects = self.pilots.bench.objective, self.end(), self.prospects()
        upto = FAR * min(prospects, default=inf)
        found = [p for p, course in enumerate(self.pilots.courses) if prospects[p] <= upto and not course.lost]
        entries = self.pilots.entries
        needed = sum((end - self.pilots.courses[p].at) / entries[p].candidate.rates.of(objective) for p in found)
        if needed <= trainings:
            self.told(f"{len(found)} pilots to the end", RACE_SHARE)
            self.pilots.climb(found, end)

    def next_stop(self, pilot: int) -> float:
        """A step further; but before a pilot means anything, there is no use in looking at it."""
        course = self.pilots.courses[pilot]
        return max(course.at * STEP, self.opened, min(course.settled, 0.5 * self.end()))

    def end(self) -> float:
        """No pilot needs to go beyond: the budget, or where the first arrived."""
        if self.budget is not None:
            return self.budget
        arrived = [c.arrived for c in self.pilots.courses if c.arrived is not None]
        return min([self.limits.cost, *arrived])

    def open(self) -> None:
        """The plausible ones together until the leader has said something."""
        pilots, goal = self.pilots, self.pilots.bench.scale.goal
        while self.opened < self.end() and pilots.trainings < self.limits.trainings:
            chosen = self.plausible()
            self.told(f"{len(chosen)} pilots together", RACE_SHARE * self.way())
            pilots.climb(chosen, self.opened)
            if any(len(c.cost) > 2 and not c.lost and c.progress > SAID * goal for c in pilots.courses):
                return
            self.opened *= OPENING

    def plausible(self) -> list[int]:
        """Those whose cost by theory, up to a common factor, is near the least of all that have not diverged.

        Where neither the sum of all models is kept by mixing nor every update counts once, there is no such theory:
        these start with the others.
        """
        objective = self.pilots.bench.objective
        promise = {
            p: entry.candidate.active / entry.candidate.lr * entry.candidate.rates.of(objective)
            for p, entry in enumerate(self.pilots.entries)
            if not self.pilots.courses[p].lost
        }
        least = min(promise.values(), default=inf)
        protocols = [entry.candidate.protocol for entry in self.pilots.entries]
        return [p for p, cost in promise.items() if cost <= PLAUSIBLE * least or not protocols[p].conserves]

    def way(self) -> float:
        """How far the leader is, from 0 to 1."""
        courses = [c for c in self.pilots.courses if len(c.cost) > 2 and not c.lost]
        if self.budget is not None:
            return max((c.at for c in courses), default=0.0) / self.budget
        return min(1.0, max((c.progress for c in courses), default=0.0) / self.pilots.bench.scale.goal)

    def choose(self) -> list[int]:
        """The pilots to take further: those with the best prospects, while these are better than what is certain."""
        if self.pilots.trainings >= self.limits.trainings:
            return []
        end = self.end()
        prospects = self.prospects()
        certain = min((prospects[p] for p, _ in enumerate(prospects) if self.done(p, end)), default=inf)
        waiting = [p for p, prospect in enumerate(prospects) if not self.done(p, end) and prospect < WORTH * certain]
        waiting = [p for p in waiting if not self.pilots.courses[p].lost and isfinite(prospects[p])]
        waiting.sort(key=lambda p: prospects[p])
        return [p for p in waiting[:AT_ONCE] if prospects[p] <= CLOSE * prospects[waiting[0]]]

    def done(self, pilot: int, end: float) -> bool:
        course = self.pilots.courses[pilot]
        return course.arrived is not None or course.at >= end

    def prospects(self) -> list[float]:
        """For every pilot the cost at which it will arrive, or its loss above the lowest when the budget is spent."""
        found = [self.prospect(p) for p in range(len(self.pilots.entries))]
        spoken = [p for p, c in enumerate(self.pilots.courses) if not c.silent and isfinite(found[p])]
        if not spoken:
            return found
        leader = min(spoken, key=lambda p: found[p])
        for p, course in enumerate(self.pilots.courses):
            if course.silent and not course.lost and self.budget is None:
                promise = carried_over(found[leader], self.pilots.entries[leader], self.pilots.entries[p], self)
                found[p] = max(course.at, promise)
        return found

    def prospect(self, pilot: int) -> float:
        return prospect_of(self.pilots.courses[pilot], self.budget)


def prospect_of(course: Course, budget: float | None) -> float:
    """The cost at which a pilot will arrive, or its loss above the lowest when the budget is spent."""
    if budget is not None:
        return course.scale.excess(course.expected_loss(budget))
    if course.arrived is not None or course.lost or len(course.cost) < 3:
        return course.expected_cost()
    progress, here, pace = course.pace()
    least = STALLED * max(progress, NOTHING_YET) / here
    return max(course.at, here + (course.scale.goal - progress) / least) if pace < least else course.expected_cost()


def carried_over(cost: float, leader: Entry, entry: Entry, race: Race) -> float:
    """What a pilot that has said nothing yet may cost, by theory, when the leader costs so much.

    To first order the mean of all models moves by (learning rate)/(active models) times the gradient in every
    iteration, whatever the algorithm; then it takes the lag until the aggregator knows.
    """
    objective = race.pilots.bench.objective
    a, b = leader.candidate, entry.candidate
    iterations = cost / a.rates.of(objective) * (b.active / a.active) * (a.lr / b.lr)
    return iterations * b.rates.of(objective) + entry.lag
