"""The closest candidates again, with other randomness, one repetition after the other, until one is clearly ahead.

The learning rates of a single walk are told apart badly by one pilot; many models at once hardly differ from run to
run. So repetitions go on only where they can still change the advice. The one that is advised then runs a few times
more: what is said about a run to come is taken from runs that had no part in its being chosen by the race.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite

import numpy as np

from walktalk.advisor.candidates import Candidate
from walktalk.advisor.course import Course, Seen
from walktalk.advisor.ground import Ground
from walktalk.advisor.pilots import Pilots
from walktalk.advisor.prediction import predict
from walktalk.advisor.surety import surety

RIVALS, AMPLE_RIVALS = 3, 6  # at most so many, and the neighbours in learning rate of a noisy leader; if cheap
NOISY = 4  # models or fewer: one pilot says little about its learning rate
NEAR = 1.5  # prospects within this of the best
STILL_NEAR = 1.2  # mean values within this of the best
UNDECIDED = 1.15  # mean values within this of the best are worth more than the usual repetitions
USUAL, MOST, AMPLE_MOST = 2, 4, 8  # repetitions beside the first pilot; where they are cheap
WIDE = 1.5  # upper over lower end: such an interval is worth more runs, if they are cheap
ENOUGH, AMPLE = 8, 16  # runs from which an interval is read: with 8 it is 28 % too wide, with 16 an eighth
SETTLED = 0.9  # so sure that nobody is 10 % better: then nobody is looked at any longer
PATIENCE = 1.15  # times the best cost: a repetition that takes longer is not waited for
WAIT = 4.0  # times the mean cost: how long one is waited for that tells what a run costs
HOPELESS = 10.0  # times what was spent on it: what a repetition without any prospect counts as


@dataclass(eq=False)
class Tried:
    """A candidate, its pilot, and where that was heading."""

    candidate: Candidate
    course: Course
    prospect: float  # the cost at which it will arrive, or its loss above the lowest when the budget is spent


@dataclass(eq=False)
class Finalist:
    """A candidate that is measured to the end."""

    candidate: Candidate
    values: list[float] = field(default_factory=list)  # cost at the target, or loss at the budget, by repetition
    ends: list[Seen] = field(default_factory=list)  # where repetitions ended that had no part in the race
    left: list[int] = field(default_factory=list)  # repetitions that were not waited for: another was ahead
    late: list[float] = field(default_factory=list)  # costs after which runs were not waited for any longer
    arrived: bool = False  # whether any of them really reached the target
    confirmed: bool = False  # whether `values` are those of runs that were all waited for

    @property
    def mean(self) -> float:
        return float(np.mean(self.values)) if self.values else inf


class Finals:
    """The last comparison."""

    def __init__(self, ground: Ground, tried: list[Tried], allowed: int) -> None:
        """
        - `ground`: what is known.
        - `tried`: every candidate that was in the race.
        - `allowed`: trainings that repetitions beyond the usual ones may take.
        """
        self.ground, self.trainings, self.repetitions = ground, 0, 0
        self.left = ground.affordable - allowed  # trainings that cost nothing worth speaking of
        self.allowed = max(allowed, 0.5 * self.left)
        self.expected = min((one.prospect for one in tried if isfinite(one.prospect)), default=inf)
        chosen = choose(tried)
        leader = min(chosen, key=lambda one: one.prospect).candidate
        self.ample = AMPLE_MOST * AMPLE_RIVALS * self.iterations(leader, self.expected) <= self.allowed
        self.most = AMPLE_MOST if self.ample else MOST
        self.finalists = [self.finalist(one) for one in (choose(tried, AMPLE_RIVALS) if self.ample else chosen)]

    def iterations(self, candidate: Candidate, cost: float) -> float:
        """How many a run of it has that costs so much, or the budget."""
        goal = self.ground.goal
        spent = cost if goal.budget is None else goal.budget
        return spent / max(candidate.rates.of(goal.objective), 1e-300)

    def finalist(self, one: Tried) -> Finalist:
        """With what its pilot has shown; one that was left waiting counts for nothing: it may have been bad luck."""
        made, budget = Finalist(one.candidate), self.ground.goal.budget
        if budget is not None and one.course.at >= budget:
            made.values.append(one.course.final_loss)
        elif budget is None and one.course.arrived is not None:
            made.values.append(one.course.arrived)
            made.arrived = True
        return made

    def run(self) -> Finalist:
        """To the end; the one that is advised."""
        while self.repetitions < self.most and (alive := self.alive(self.repetitions + 1)):
            self.repeat(alive)
        return self.advised()

    def run_with(self, more: Tried) -> Finalist:
        """The same with one candidate more, once the others have been run."""
        if more.prospect <= NEAR * self.expected:
            self.finalists.append(self.finalist(more))
        return self.advised()

    def advised(self) -> Finalist:
        """The one with the least mean, its runs all waited for."""
        while True:
            best = min(self.finalists, key=lambda finalist: finalist.mean)
            if best.confirmed:
                return best
            hoped = best.mean
            self.confirm(best)
            if best.mean <= STILL_NEAR * hoped:
                return best  # else it was luck, as with a rate at which one run in eight never gets there

    def alive(self, repetition: int) -> list[Finalist]:
        """Who runs again; nobody when the matter is settled."""
        best = min(finalist.mean for finalist in self.finalists)
        close = UNDECIDED if repetition > USUAL else STILL_NEAR
        near = [f for f in self.finalists if not f.values or f.mean <= close * best]
        if repetition > USUAL and (len(near) < 2 or self.trainings > self.allowed or self.settled()):
            return []
        if len(near) == 1 and near[0].values:
            enough = 2 if near[0].candidate.active <= NOISY else 1
            return [] if len(near[0].values) >= enough else near
        return near

    def surety(self, best: Finalist) -> float:
        """How sure it is that no other finalist is much better than this one."""
        return surety(best.values, [other.values for other in self.finalists if other is not best])

    def settled(self) -> bool:
        """Whether more repetitions would only tell apart those that are as good as each other."""
        return self.surety(min(self.finalists, key=lambda finalist: finalist.mean)) >= SETTLED

    def repeat(self, alive: list[Finalist]) -> None:
        """One more repetition of each."""
        self.repetitions += 1
        pilots = Pilots(self.ground.bench, [self.ground.entry(one.candidate, self.repetitions) for one in alive])
        if self.ground.goal.budget is not None:
            pilots.climb(range(len(alive)), self.ground.goal.budget)
        else:
            self.to_the_first(pilots)
        self.trainings += pilots.trainings
        for finalist, course in zip(alive, pilots.courses, strict=True):
            self.take(finalist, course)

    def take(self, finalist: Finalist, course: Course) -> None:
        """What a repetition has shown."""
        if self.ground.goal.budget is not None:
            finalist.values.append(course.final_loss)
            finalist.ends.append(course.seen[-1])
            return
        finalist.values.append(min(max(course.expected_cost(), course.at), HOPELESS * course.at))
        if course.arrival is not None:
            finalist.arrived = True
            finalist.ends.append(course.arrival)
        else:
            finalist.left.append(self.repetitions)

    def to_the_first(self, pilots: Pilots) -> None:
        """Until the first arrives, and a little longer for those that may be close behind."""
        everyone, upto = range(len(pilots.entries)), 0.3 * min(self.expected, self.ground.longest)
        while upto < 2 * self.ground.longest:
            pilots.climb(everyone, upto)
            first = min((c.arrived for c in pilots.courses if c.arrived is not None), default=inf)
            if isfinite(first):
                known = min(finalist.mean for finalist in self.finalists)
                pilots.climb(everyone, PATIENCE * max(first, known if isfinite(known) else 0.0))
                return
            upto *= 1.1

    def confirm(self, best: Finalist) -> None:
        """Runs of the advised one, all waited for, until there are enough to tell what a run costs.

        Repetitions that were left because another was ahead are made again with the same randomness, to their end: else
        only the quick ones would count.
        """
        goal, again = self.ground.goal, best.left
        best.confirmed = True
        if goal.budget is None and not best.arrived:
            return  # nothing but extrapolations: more of them would not make it sure
        last = self.repetitions
        new = range(last + 1, last + 1 + max(0, ENOUGH - len(best.ends) - len(again)))
        self.to_the_end(best, [*again, *new])
        affordable = (AMPLE - ENOUGH) * self.iterations(best.candidate, best.mean) <= self.left - self.trainings
        found = predict(best.values)
        if affordable and found.high > WIDE * found.low > 0:
            last += len(new)
            self.to_the_end(best, list(range(last + 1, last + 1 + max(0, AMPLE - len(best.ends)))))

    def to_the_end(self, best: Finalist, repetitions: list[int]) -> None:
        """These runs of the advised one, all waited for."""
        goal, ground = self.ground.goal, self.ground
        if repetitions:
            pilots = Pilots(ground.bench, [ground.entry(best.candidate, repetition) for repetition in repetitions])
            upto = goal.budget if goal.budget is not None else min(WAIT * best.mean, 2 * ground.longest)
            pilots.climb(range(len(pilots.entries)), upto)
            self.trainings += pilots.trainings
            best.late += [] if goal.budget is not None else [c.at for c in pilots.courses if c.arrival is None]
            best.ends += [self.end_of(course) for course in pilots.courses]
        best.values = [end.of(goal.objective if goal.budget is None else "loss") for end in best.ends]

    def end_of(self, course: Course) -> Seen:
        """Where a run ends, or would by its pace where it was waited for in vain."""
        if self.ground.goal.budget is not None:
            return course.seen[-1]
        if course.arrival is not None:
            return course.arrival
        last, objective = course.seen[-1], self.ground.goal.objective
        more = min(max(course.expected_cost(), course.at), HOPELESS * course.at) / max(last.of(objective), 1e-300)
        return Seen(last.iterations * more, last.time * more, last.bits * more, inf)


def choose(tried: list[Tried], rivals: int = RIVALS) -> list[Tried]:
    """The best few; where the best has few models, also its neighbours in learning rate, which one run may misjudge.

    Args:
        tried: All candidates, and where they were heading.
        rivals: At most so many, and those neighbours.
    """
    order = sorted((one for one in tried if isfinite(one.prospect)), key=lambda one: one.prospect)
    if not order:
        return tried[:1]
    best = order[0]
    found = [one for one in order[:rivals] if one.prospect <= NEAR * best.prospect]
    if best.candidate.active <= NOISY:
        same = [one for one in tried if one.candidate.protocol == best.candidate.protocol]
        same.sort(key=lambda one: one.candidate.lr)
        place = same.index(best)
        found += same[max(0, place - 1) : place + 2]
    return list(dict.fromkeys(found))
