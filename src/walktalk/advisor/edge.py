"""A learning rate at the edge of those tried may not be the best: larger ones, or smaller ones, are tried until one is
not better than the one before."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite

from walktalk.advisor.candidates import Candidate, rounded
from walktalk.advisor.finals import Tried
from walktalk.advisor.ground import Ground
from walktalk.advisor.pilots import Pilots
from walktalk.advisor.race import RACE_SHARE, Told, prospect_of

FACTOR = 3.0  # from one rate to the next
STEPS = 5  # at most: 243 times the study's own rate
AGAIN = 2.0  # times the cost of arriving


class Edge:
    """The search beyond the edge."""

    def __init__(self, ground: Ground, tried: list[Tried], say: Told) -> None:
        """
        - `ground`: what is known.
        - `tried`: all candidates so far; new ones are added.
        - `say`: called with a line now and then.
        """
        self.ground, self.tried, self.say = ground, tried, say
        self.trainings = 0

    def search(self) -> None:
        """Pilots of the leader beyond the edge, for as long as they are better than the one before."""
        for _ in range(STEPS):
            leader = min(self.tried, key=lambda one: one.prospect)
            if not isfinite(leader.prospect) or self.step(leader.candidate, leader.prospect) is None:
                return

    def step(self, leader: Candidate, prospect: float) -> Tried | None:
        """A pilot with the next rate; None where the leader's rate is between two others.

        Args:
            leader: The candidate beyond whose rate to look.
            prospect: What it costs: so far the pilot goes, unless there is a budget.
        """
        rate, budget = beyond(leader, self.tried), self.ground.goal.budget
        if rate is None:
            return None
        self.say(f"beyond the edge of the learning rates: {rate:g}", RACE_SHARE)
        candidate = replace(leader, lr=rate)
        pilots = Pilots(self.ground.bench, [self.ground.entry(candidate, 0)])
        pilots.climb([0], budget if budget is not None else min(prospect, self.ground.longest))
        by_luck = arrived_by_luck(pilots)
        self.trainings += pilots.trainings
        found = Tried(candidate, pilots.courses[0], inf if by_luck else prospect_of(pilots.courses[0], budget))
        self.tried.append(found)
        return found


def arrived_by_luck(pilots: Pilots) -> bool:
    """Whether a pilot that has arrived is lost when it has gone as far again: then its rate is too large to be advised.

    A large rate throws models about, and sooner or later an evaluation finds one that is good for a moment.
    """
    course = pilots.courses[0]
    if course.arrived is None:
        return False
    pilots.advance([0], AGAIN * max(course.arrived, course.at))
    return not course.loss[-1] < course.scale.start


def beyond(leader: Candidate, tried: list[Tried]) -> float | None:
    """The next rate beyond those tried of the leader's algorithm; None where it is between two that are worse."""
    rates = [one.candidate.lr for one in tried if one.candidate.protocol == leader.protocol]
    if leader.lr == max(rates):
        return rounded(leader.lr * FACTOR)
    return rounded(leader.lr / FACTOR) if leader.lr == min(rates) else None
