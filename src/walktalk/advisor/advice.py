"""The advice: from a study and a goal to an algorithm, its settings, what it will cost, why, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, exp, log, sqrt

import numpy as np

from walktalk.advisor.candidates import Candidate
from walktalk.advisor.finals import Finalist, Finals
from walktalk.advisor.goal import Goal
from walktalk.advisor.ground import Ground, survey
from walktalk.advisor.pilots import Pilots
from walktalk.advisor.race import RACE_SHARE, Limits, Race, Told
from walktalk.errors import SpecError
from walktalk.studies import StudySpec

LEAST_SPREAD = 0.05  # of one repetition's cost, relative: two that agree by luck prove nothing
MOST_TRAININGS = 40.0  # times the iterations of the study's stop, all pilots together
STUDENT = 2.57  # 95 % of Student's t with five degrees of freedom: about what a few repetitions leave
ONE_RUN = 0.15  # the relative spread that is assumed where nothing was repeated
CAUTION = 0.95  # a pilot that was left waiting may have been the best after all
WITHIN = 1.1  # "as good as": within 10 % of the best


@dataclass(frozen=True)
class Advice:
    """What to do, and what it will cost."""

    ground: Ground  # what was known before the pilots
    best: Candidate  # the advised algorithm and its learning rate
    cost: float  # in the objective's unit, to the target; the budget where there is one
    loss: float  # at that cost
    low: float  # 95 % interval of the cost of one run; of its loss, with a budget
    high: float  # the other end of that interval
    rivals: list[Finalist]  # the advised one among them
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
    """Which algorithm, how many walks, which aggregator, which learning rate: by theory, then by short pilots.

    Args:
        spec: The study: graph, task, timing, learning rate.
        goal: What to save, and how far to get; time to a tenth of the excess loss if left out.
        device: `auto`, `cpu` or `cuda`, for the pilots.
        model_bytes: Size of the model on the wire, where the pilots train a smaller one.
        told: Called with a line now and then.
    """
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
    if all(course.lost for course in pilots.courses):  # an extrapolation from them would be made of nothing
        rates = sorted({candidate.lr for candidate in ground.candidates})
        raise SpecError(
            f"optimizer.lr: {spec.optimizer.lr:g} is too large; every pilot diverged, with rates of {rates[0]:g} to "
            f"{rates[-1]:g}; take a much smaller one and ask again"
        )
    prospects = race.prospects()
    finals = Finals(ground, pilots, prospects)
    say(f"finalists: {len(finals.finalists)}, with other randomness", RACE_SHARE)
    finals.run()
    spent = pilots.trainings + finals.trainings
    return conclude(ground, finals.finalists, spent, {c.label: prospects[p] for p, c in enumerate(ground.candidates)})


def conclude(ground: Ground, finalists: list[Finalist], trainings: int, prospects: dict[str, float]) -> Advice:
    """The finalist with the least mean, and what its repetitions say about a run to come."""
    budget = ground.goal.budget
    best = min(finalists, key=lambda finalist: finalist.mean)
    spread = log_spread([finalist.values for finalist in finalists])
    count = len(best.values)
    reach = exp(STUDENT * spread * sqrt(1 + 1 / count))
    reached = best.arrived or budget is not None
    return Advice(
        ground=ground,
        best=best.candidate,
        cost=budget if budget is not None else best.mean,
        loss=best.mean if budget is not None else ground.target,
        low=best.mean / reach,
        high=best.mean * reach,
        rivals=finalists,
        sure=surety(best, finalists, spread) * (CAUTION if reached else 0.5),
        reached=reached,
        trainings=trainings,
        prospects=prospects,
    )


def surety(best: Finalist, finalists: list[Finalist], spread: float) -> float:
    """The probability that no other finalist is really more than 10 % better, with normal errors of the log means."""
    sure = 1.0
    for other in finalists:
        if other is not best and other.values:
            gap = log(WITHIN * other.mean / best.mean)
            sure *= normal(gap / (spread * sqrt(1 / len(best.values) + 1 / len(other.values))))
    return sure


def log_spread(values: list[list[float]]) -> float:
    """The relative spread of one repetition, pooled over the finalists."""
    logs = [np.log(np.maximum(vs, 1e-300)) for vs in values if len(vs) > 1]
    freedom = sum(len(vs) - 1 for vs in logs)
    if not freedom:
        return ONE_RUN
    return max(LEAST_SPREAD, sqrt(sum(float(((vs - vs.mean()) ** 2).sum()) for vs in logs) / freedom))


def normal(z: float) -> float:
    """The probability that a standard normal number is below z."""
    return 0.5 * (1 + erf(z / sqrt(2)))
