"""The advice: from a study and a goal to an algorithm, its settings, what it will cost, why, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, exp, inf, isfinite, log, sqrt

import numpy as np

from walktalk.advisor.candidates import Candidate
from walktalk.advisor.goal import Goal
from walktalk.advisor.ground import Ground, survey
from walktalk.advisor.pilots import Pilots
from walktalk.advisor.race import RACE_SHARE, Limits, Race, Told, mean_cost
from walktalk.studies import StudySpec

RIVALS = 3  # at most so many run again, and the neighbours in learning rate of a noisy leader
NOISY = 4  # models or fewer: one pilot says little about its learning rate
NEAR = 1.6  # those whose prospects are within this of the best
AGAIN = 2  # repetitions more
PATIENCE = 1.15  # times the best mean cost: a repetition that takes longer is not waited for
LEAST_SPREAD = 0.05  # of one repetition's cost, relative: two that agree by luck prove nothing
MOST_TRAININGS = 40.0  # times the iterations of the study's stop, all pilots together
CAUTION = 0.95  # a pilot that was left waiting may have been the best after all
WITHIN = 1.1  # "as good as": within 10 % of the best


@dataclass(frozen=True)
class Rival:
    """A candidate that was measured to the end."""

    candidate: Candidate
    value: float  # cost at the target, or loss at the budget: mean over repetitions
    repetitions: int
    arrived: bool


@dataclass(frozen=True)
class Advice:
    """What to do, and what it will cost."""

    ground: Ground
    best: Candidate
    cost: float  # in the objective's unit, to the target; the budget where there is one
    loss: float  # at that cost
    low: float  # 95 % interval of the cost of one run; of its loss, with a budget
    high: float
    rivals: list[Rival]
    sure: float  # probability of being within 10 % of the best candidate
    reached: bool  # whether a pilot really got there; else it is extrapolated
    trainings: int  # what the advice itself took
    prospects: dict[str, float]  # candidate -> expected cost or loss, as far as its pilot went

    @property
    def iterations(self) -> float:
        return self.cost / max(self.best.rates.of(self.ground.goal.objective), 1e-300)


def advise(
    spec: StudySpec,
    goal: Goal | None = None,
    *,
    device: str = "auto",
    model_bytes: int | None = None,
    told: Told | None = None,
) -> Advice:
    """Which algorithm, how many walks, which aggregator, which learning rate: by theory, then by short pilots."""
    say = told or (lambda text, share: None)
    say("looking at the task and the network", 0.0)
    return advise_on(survey(spec, goal or Goal(), device=device, model_bytes=model_bytes), say)


def advise_on(ground: Ground, say: Told) -> Advice:
    """The advice, once everything is prepared."""
    goal, spec = ground.goal, ground.spec
    pilots = Pilots(ground.bench, [ground.entry(candidate, 0) for candidate in ground.candidates])
    fastest = min(c.rates.of(goal.objective) for c in ground.candidates)
    most = MOST_TRAININGS * (spec.stop.iterations or ground.longest / fastest)
    race = Race(pilots, Limits(most, ground.longest), goal.budget, say)
    race.run()
    prospects = race.prospects()
    order = sorted((p for p in range(len(prospects)) if isfinite(prospects[p])), key=lambda p: prospects[p])
    finalists = choose_finalists(ground.candidates, prospects, order)
    finals = run_again(ground, [ground.candidates[p] for p in finalists], prospects[finalists[0]], say)
    # A pilot that was left waiting counts for nothing: it was left for what may have been bad luck.
    done = [pilots.courses[p].arrived is not None or goal.budget is not None for p in finalists]
    values = [[final_value(pilots, p, goal, prospects[p])] if ok else [] for p, ok in zip(finalists, done, strict=True)]
    for place, courses in enumerate(group(len(finalists))):
        values[place] += [final_value(finals, q, goal, inf) for q in courses]
    return conclude(ground, pilots, finals, finalists, values, prospects)


def choose_finalists(candidates: list[Candidate], prospects: list[float], order: list[int]) -> list[int]:
    """The best few; where the best has few models, also its neighbours in learning rate, which one run may misjudge."""
    if not order:
        return [0]
    best = order[0]
    found = [p for p in order[:RIVALS] if prospects[p] <= NEAR * prospects[best]]
    if candidates[best].active <= NOISY:
        same = [p for p, c in enumerate(candidates) if c.protocol == candidates[best].protocol]
        place = same.index(best)
        found += same[max(0, place - 1) : place + 2]
    return list(dict.fromkeys(found))


def run_again(ground: Ground, candidates: list[Candidate], expected: float, say: Told) -> Pilots:
    """The closest candidates with other randomness."""
    say(f"{len(candidates)} finalists with other randomness", RACE_SHARE)
    entries = [ground.entry(candidate, k) for candidate in candidates for k in range(1, AGAIN + 1)]
    finals = Pilots(ground.bench, entries)
    if ground.goal.budget is not None:
        finals.climb(range(len(entries)), ground.goal.budget)
        return finals
    upto = 0.3 * min(expected, ground.longest)
    while upto < 2 * ground.longest:
        finals.climb(range(len(entries)), upto)
        means = [mean_cost([finals.courses[q].arrived for q in one]) for one in group(len(candidates))]
        if isfinite(min(means)):
            finals.climb(range(len(entries)), PATIENCE * min(means))
            break
        upto *= 1.1
    return finals


def group(count: int) -> list[range]:
    """The repetitions of each of so many finalists."""
    return [range(k * AGAIN, (k + 1) * AGAIN) for k in range(count)]


def final_value(pilots: Pilots, pilot: int, goal: Goal, otherwise: float) -> float:
    """The cost of a repetition, or its loss; one that was not waited for counts as what it must at least cost."""
    course = pilots.courses[pilot]
    if goal.budget is not None:
        return course.smooth(course.loss, len(course.loss) - 1) if course.at >= goal.budget * 0.999 else otherwise
    if course.arrived is not None:
        return course.arrived
    return otherwise if isfinite(otherwise) else max(course.expected_cost(), course.at)


def conclude(
    ground: Ground,
    pilots: Pilots,
    finals: Pilots,
    finalists: list[int],
    values: list[list[float]],
    prospects: list[float],
) -> Advice:
    goal = ground.goal
    clipped = [[min(v, 10 * min(vs)) for v in vs] for vs in values]  # one that never arrives is bad, not infinite
    means = [float(np.mean(vs)) for vs in clipped]
    best = int(np.argmin(means))
    spread = log_spread(clipped)
    sure = 1.0
    for place, mean in enumerate(means):
        if place != best:
            gap = log(WITHIN * mean / means[best])
            sure *= normal(gap / (spread * sqrt(2 / len(values[best]))))
    winner = ground.candidates[finalists[best]]
    reach = exp(1.96 * spread * sqrt(1 + 1 / len(values[best])))
    reached = any(pilots.courses[p].arrived is not None for p in finalists) or goal.budget is not None
    mean = means[best]
    budget = goal.budget
    return Advice(
        ground=ground,
        best=winner,
        cost=budget if budget is not None else mean,
        loss=mean if budget is not None else ground.target,
        low=mean / reach,
        high=mean * reach,
        rivals=[
            Rival(ground.candidates[p], means[k], len(values[k]), pilots.courses[p].arrived is not None)
            for k, p in enumerate(finalists)
        ],
        sure=sure * (CAUTION if reached else 0.5),
        reached=reached,
        trainings=pilots.trainings + finals.trainings,
        prospects={c.label: prospects[p] for p, c in enumerate(ground.candidates)},
    )


def log_spread(values: list[list[float]]) -> float:
    """The relative spread of one repetition, pooled over the finalists."""
    logs = [np.log(np.maximum(vs, 1e-300)) for vs in values if len(vs) > 1]
    freedom = sum(len(vs) - 1 for vs in logs)
    if not freedom:
        return 0.25
    return max(LEAST_SPREAD, sqrt(sum(float(((vs - vs.mean()) ** 2).sum()) for vs in logs) / freedom))


def normal(z: float) -> float:
    """The probability that a standard normal number is below z."""
    return 0.5 * (1 + erf(z / sqrt(2)))
