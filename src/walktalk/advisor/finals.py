"""The closest candidates again, with other randomness, one repetition after the other, until one is clearly ahead.

The learning rates of a single walk are told apart badly by one pilot; many models at once hardly differ from run to
run. So repetitions go on only where they can still change the advice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite

import numpy as np

from walktalk.advisor.candidates import Candidate
from walktalk.advisor.ground import Ground
from walktalk.advisor.pilots import Pilots

RIVALS = 3  # at most so many, and the neighbours in learning rate of a noisy leader
NOISY = 4  # models or fewer: one pilot says little about its learning rate
NEAR = 1.5  # prospects within this of the best
STILL_NEAR = 1.2  # mean values within this of the best
UNDECIDED = 1.15  # mean values within this of the best are worth more than the usual repetitions
USUAL, MOST = 2, 4  # repetitions beside the first pilot
PATIENCE = 1.15  # times the best cost: a repetition that takes longer is not waited for
HOPELESS = 10.0  # times what was spent on it: what a repetition without any prospect counts as


@dataclass
class Finalist:
    """A candidate that is measured to the end."""

    candidate: Candidate
    values: list[float] = field(default_factory=list)  # cost at the target, or loss at the budget, by repetition
    arrived: bool = False  # whether any of them really reached the target

    @property
    def mean(self) -> float:
        return float(np.mean(self.values)) if self.values else inf


class Finals:
    """The last comparison."""

    def __init__(self, ground: Ground, pilots: Pilots, prospects: list[float]) -> None:
        self.ground = ground
        self.allowed = pilots.trainings  # beyond the usual repetitions, finals may cost as much as the race did
        self.trainings = 0
        self.expected = min((p for p in prospects if isfinite(p)), default=inf)
        self.finalists = []
        for p in choose(ground.candidates, prospects):
            course = pilots.courses[p]
            finalist = Finalist(ground.candidates[p])
            # A pilot that was left waiting counts for nothing: it may have been left for bad luck.
            if ground.goal.budget is not None and course.at >= 0.999 * ground.goal.budget:
                finalist.values.append(course.smooth(course.loss, len(course.loss) - 1))
            elif ground.goal.budget is None and course.arrived is not None:
                finalist.values.append(course.arrived)
                finalist.arrived = True
            self.finalists.append(finalist)

    def run(self) -> None:
        for repetition in range(1, MOST + 1):
            alive = self.alive(repetition)
            if not alive:
                return
            self.repeat(alive, repetition)

    def alive(self, repetition: int) -> list[Finalist]:
        """Who runs again; nobody when the matter is settled."""
        best = min(finalist.mean for finalist in self.finalists)
        close = UNDECIDED if repetition > USUAL else STILL_NEAR
        near = [f for f in self.finalists if not f.values or f.mean <= close * best]
        if repetition > USUAL and (len(near) < 2 or self.trainings > self.allowed):
            return []
        if len(near) == 1 and near[0].values:
            enough = 2 if near[0].candidate.active <= NOISY else 1
            return [] if len(near[0].values) >= enough else near
        return near

    def repeat(self, alive: list[Finalist], repetition: int) -> None:
        ground, goal = self.ground, self.ground.goal
        pilots = Pilots(ground.bench, [ground.entry(finalist.candidate, repetition) for finalist in alive])
        everyone = range(len(alive))
        if goal.budget is not None:
            pilots.climb(everyone, goal.budget)
        else:
            self.to_the_first(pilots)
        self.trainings += pilots.trainings
        for finalist, course in zip(alive, pilots.courses, strict=True):
            finalist.arrived |= course.arrived is not None
            if goal.budget is not None:
                finalist.values.append(course.smooth(course.loss, len(course.loss) - 1))
            else:
                finalist.values.append(min(max(course.expected_cost(), course.at), HOPELESS * course.at))

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


def choose(candidates: list[Candidate], prospects: list[float]) -> list[int]:
    """The best few; where the best has few models, also its neighbours in learning rate, which one run may misjudge."""
    order = sorted((p for p in range(len(prospects)) if isfinite(prospects[p])), key=lambda p: prospects[p])
    if not order:
        return [0]
    best = order[0]
    found = [p for p in order[:RIVALS] if prospects[p] <= NEAR * prospects[best]]
    if candidates[best].active <= NOISY:
        same = [p for p, c in enumerate(candidates) if c.protocol == candidates[best].protocol]
        place = same.index(best)
        found += same[max(0, place - 1) : place + 2]
    return list(dict.fromkeys(found))
