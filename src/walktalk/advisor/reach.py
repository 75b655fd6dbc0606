"""A goal that pilots can reach: what they have shown decides, not what a short descent promised.

Without a target the advisor asks for a tenth of the excess over the lowest loss that seems possible. On few samples
that floor may lie far below all that a run gets to, and an extrapolation to it says nothing. Then the target is set by
the lowest loss that pilots came to within the study's stop. A person's own target is not touched: where the stop comes
too early for it and trainings are cheap, pilots go on; and if that does not help either, the question that can be
answered is how low a run gets within the stop.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite

from walktalk.advisor.course import Scale
from walktalk.advisor.goal import Goal
from walktalk.advisor.ground import OF_THE_WAY, Ground, rounded_loss
from walktalk.advisor.pilots import Pilots
from walktalk.advisor.race import Limits, Race, Told

MOST_TRAININGS = 40.0  # times the iterations of the study's stop, all pilots together
FREE = 0.5  # of the trainings that nobody minds: for pilots; the rest is for repetitions
IN_TIME = 0.5  # of the longest run: a target that the first pilot reaches later, others may not reach at all
BEYOND = 8.0  # times the longest run: so far pilots go for a target that they have not reached by then
BELOW = 0.05  # of what was gained: how much lower the loss may still get than anything that pilots have shown


def hold_race(ground: Ground, say: Told) -> tuple[Ground, Pilots, Race]:
    """The first repetition of every candidate, until it is known where each was heading; and the goal they had.

    Args:
        ground: What is known before.
        say: Called with a line now and then.
    """
    goal, stop = ground.goal, ground.situation.stop
    pilots = Pilots(ground.bench, [ground.entry(candidate, 0) for candidate in ground.candidates])
    fastest = min(candidate.rates.of(goal.objective) for candidate in ground.candidates)
    most = max(MOST_TRAININGS * (stop.iterations or ground.longest / fastest), ground.affordable)
    race = Race(pilots, Limits(most, ground.longest), goal.budget, say)
    race.run()
    if goal.budget is None and goal.target_loss is None:
        ground = within_reach(ground, race)
    elif goal.budget is None:
        ground = further(ground, race)
    race.complete(FREE * ground.affordable - pilots.trainings)
    return ground, pilots, race


def first_arrival(pilots: Pilots) -> float:
    """The cost at which the first pilot was there; infinity where none was."""
    return min((course.arrived for course in pilots.courses if course.arrived is not None), default=inf)


def within_reach(ground: Ground, race: Race) -> Ground:
    """The same with a target that pilots have shown, where ours is reached late or not at all; they then go on."""
    pilots, old = race.pilots, ground.bench.scale
    lowest = min((course.lately for course in pilots.courses if not course.lost), default=inf)
    if first_arrival(pilots) <= IN_TIME * ground.longest or not lowest < old.start:
        return ground
    gained = old.start - lowest
    target = rounded_loss(lowest + OF_THE_WAY * gained)
    if not old.target < target < old.start:
        return ground
    pilots.aim(Scale(old.start, lowest - BELOW * gained, target))
    race.run()
    return replace(ground, bench=pilots.bench, lowered=True)


def further(ground: Ground, race: Race) -> Ground:
    """The same with longer runs, where the stop is too early for the target and trainings are cheap."""
    pilots, longest = race.pilots, ground.longest
    while (
        not isfinite(first_arrival(pilots))
        and not all(course.lost for course in pilots.courses)
        and ground.situation.constant_rate  # a schedule says how long a run is
        and pilots.trainings < ground.affordable
        and 2 * longest <= BEYOND * ground.longest
    ):
        longest *= 2
        race.limits = replace(race.limits, cost=longest)
        race.run()
    return replace(ground, longest=longest) if isfinite(first_arrival(pilots)) else ground


def without_target(ground: Ground) -> Ground:
    """The question that can be answered where no pilot got to the target: the lowest loss within the longest run."""
    goal = Goal(ground.goal.objective, budget=ground.longest)
    end = ground.longest
    bench = replace(ground.bench, budget=end, schedule_end=lambda candidate: end)
    return replace(ground, goal=goal, bench=bench)
