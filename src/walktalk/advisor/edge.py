"""A learning rate at the edge of those tried may not be the best: larger ones, or smaller ones, are tried until one is
not better than the one before."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite

from walktalk.advisor.candidates import Candidate, rounded
from walktalk.advisor.finals import Tried
from walktalk.advisor.ground import Ground
from walktalk.advisor.pilots import Pilots
from walktalk.advisor.race import Told, prospect_of

FACTOR = 3.0  # from one rate to the next
STEPS = 5  # at most: 243 times the study's own rate
AGAIN = 2.0  # times the cost of arriving


def search_on(ground: Ground, tried: list[Tried], say: Told, share: float) -> int:
    """Add pilots of the leader beyond the edge for as long as they are better; how many trainings it took.

    Args:
        ground: What is known.
        tried: All candidates so far; the new ones are added.
        say: Called with a line now and then.
        share: How far a progress bar is meanwhile.
    """
    trainings = 0
    for _ in range(STEPS):
        leader = min(tried, key=lambda one: one.prospect)
        rate = beyond(leader.candidate, tried)
        if rate is None or not isfinite(leader.prospect):
            break
        candidate = replace(leader.candidate, lr=rate)
        say(f"beyond the edge of the learning rates: {rate:g}", share)
        pilots = Pilots(ground.bench, [ground.entry(candidate, 0)])
        budget = ground.goal.budget
        pilots.climb([0], budget if budget is not None else min(leader.prospect, ground.longest))
        trainings += pilots.trainings
        by_luck = arrived_by_luck(pilots)
        prospect = inf if by_luck else prospect_of(pilots.courses[0], budget)
        tried.append(Tried(candidate, pilots.courses[0], prospect))
    return trainings


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
