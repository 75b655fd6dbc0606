"""The advice: from a situation and a goal to an algorithm, its settings, what it will cost, why, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import erf, isfinite, log, nan, sqrt
from typing import Any

import numpy as np
import pandas as pd

from walktalk.advisor.candidates import Candidate
from walktalk.advisor.carry_out import code, run, study_of
from walktalk.advisor.edge import STEPS, Edge
from walktalk.advisor.finals import Finalist, Finals, Tried
from walktalk.advisor.goal import OBJECTIVES, Goal
from walktalk.advisor.ground import Ground, survey
from walktalk.advisor.pilots import Pilots
from walktalk.advisor.prediction import Prediction, predict
from walktalk.advisor.race import RACE_SHARE, Limits, Race, Told
from walktalk.advisor.situation import Situation, of_study
from walktalk.advisor.words import headline, html
from walktalk.errors import SpecError
from walktalk.studies import StudySpec

LEAST_SPREAD = 0.05  # of one repetition's cost, relative: two that agree by luck prove nothing
ONE_RUN = 0.15  # the relative spread that is assumed where nothing was repeated
MOST_TRAININGS = 40.0  # times the iterations of the study's stop, all pilots together
CAUTION = 0.95  # a pilot that was left waiting may have been the best after all
WITHIN = 1.1  # "as good as": within 10 % of the best


@dataclass(frozen=True, repr=False)
class Advice:
    """What to do, and what it will cost."""

    ground: Ground  # what was known before the pilots
    finalist: Finalist  # the advised candidate, with the runs that it was tried in
    rivals: list[Finalist]  # all that were measured to the end, the advised one among them
    tried: list[Tried]  # every candidate's pilot, and where it was heading
    sure: float  # probability of being within 10 % of the best candidate
    trainings: int  # what the advice itself took

    @property
    def best(self) -> Candidate:
        """The advised algorithm and its learning rate."""
        return self.finalist.candidate

    @property
    def reached(self) -> bool:
        """Whether a pilot really got there; else it is extrapolated."""
        return self.finalist.arrived or self.ground.goal.budget is not None

    @cached_property
    def predictions(self) -> dict[str, Prediction]:
        """What a run will take on each axis until it stops, and its loss there, with their 95 % intervals."""
        ends, goal = self.finalist.ends, self.ground.goal
        if not self.reached or not ends:
            per = self.best.rates
            cost = predict(self.finalist.values, guessed=True).times(1 / max(per.of(goal.objective), 1e-300))
            found = {axis: cost.times(per.of(axis)) for axis in OBJECTIVES}
        else:
            found = {axis: predict([end.of(axis) for end in ends]) for axis in OBJECTIVES}
        if goal.budget is None:
            return found | {"loss": Prediction(*3 * (self.ground.target,))}
        exact = goal.budget
        return found | {
            goal.objective: Prediction(exact, exact, exact),
            "loss": predict([end.loss for end in ends] or self.finalist.values),
        }

    @property
    def answer(self) -> Prediction:
        """The cost in the objective's unit; with a budget, the loss."""
        return self.predictions[self.ground.goal.objective if self.ground.goal.budget is None else "loss"]

    @property
    def cost(self) -> float:
        """In the objective's unit, to the target; the budget where there is one."""
        return self.predictions[self.ground.goal.objective].value

    @property
    def loss(self) -> float:
        """At that cost."""
        return self.predictions["loss"].value

    @property
    def low(self) -> float:
        """95 % interval of the cost of one run; of its loss, with a budget."""
        return self.answer.low

    @property
    def high(self) -> float:
        """The other end of that interval."""
        return self.answer.high

    @property
    def prospects(self) -> dict[str, float]:
        """Candidate -> expected cost, or loss above the lowest, as far as its pilot went."""
        return {one.candidate.label: one.prospect for one in self.tried}

    @cached_property
    def ranking(self) -> pd.DataFrame:
        """All candidates, best first: what each was found or heading for, and by how many runs to the end.

        `expected` is the cost in the objective's unit, or the loss with a budget, and `low` and `high` its 95 %
        interval; `runs` is 0, and there is no interval, where a pilot was left because others were clearly ahead.
        """
        measured = {one.candidate: one for one in self.rivals}
        rows = [self._place(one, measured.get(one.candidate)) for one in self.tried]
        table = pd.DataFrame(rows).sort_values(["advised", "expected"], ascending=[False, True], kind="stable")
        return table.reset_index(drop=True)

    def _place(self, one: Tried, final: Finalist | None) -> dict[str, Any]:
        """A line of the ranking."""
        if final is self.finalist:
            found, runs = self.answer, max(len(final.ends), len(final.values))
        elif final is not None and final.values:
            found, runs = (
                predict(final.values, guessed=not final.arrived and self.ground.goal.budget is None),
                len(final.values),
            )
        else:
            floor = 0.0 if self.ground.goal.budget is None else self.ground.bench.scale.floor
            found, runs = Prediction(floor + one.prospect, nan, nan), 0
        return {
            "algorithm": one.candidate.algorithm,
            "learning_rate": one.candidate.lr,
            "expected": found.value,
            "low": found.low,
            "high": found.high,
            "runs": runs,
            "advised": final is self.finalist,
        }

    @property
    def code(self) -> str:
        """Python that carries it out, where `task` and `graph` are what the advice was asked for."""
        return code(self)

    @property
    def spec(self) -> StudySpec:
        """Where the advice is for a study: that study with the advised algorithm alone, to the target or the budget."""
        return study_of(self)

    def run(self, **changes: Any) -> Any:
        """Carry it out: `wt.train` for a task and a graph, which gives a `Run`; `wt.run_study` for a study.

        Args:
            changes: Any argument of these, in place of the advised.
        """
        return run(self, changes)

    def __repr__(self) -> str:
        return f"Advice({headline(self)})"

    def _repr_html_(self) -> str:
        return html(self)


def advise_study(
    spec: StudySpec,
    goal: Goal | None = None,
    *,
    algorithms: str | Sequence[Any] | None = None,
    device: str = "auto",
    model_bytes: int | None = None,
    told: Told | None = None,
) -> Advice:
    """Which algorithm, how many walks, which aggregator, which learning rate: by theory, then by short pilots.

    Args:
        spec: The study: graph, task, timing, learning rate, stop and evaluations.
        goal: What to save, and how far to get; time to a tenth of the excess loss if left out.
        algorithms: What to choose among: "all", or a list of names; walks, gossip and what the study names if left out.
        device: `auto`, `cpu` or `cuda`, for the pilots.
        model_bytes: Size of the model on the wire, where the pilots train a smaller one.
        told: Called with a line now and then.
    """
    return advise_in(of_study(spec, device), goal or Goal(), algorithms, model_bytes, told)


def advise_in(
    situation: Situation,
    goal: Goal,
    algorithms: str | Sequence[Any] | None = None,
    model_bytes: int | None = None,
    told: Told | None = None,
) -> Advice:
    """The same for any situation, which `of_study` or `of_foundation` make; arguments as above."""
    say = told or silent
    say("looking at the task and the network", 0.0)
    return advise_on(survey(situation, goal, wanted=algorithms, model_bytes=model_bytes), say)


def silent(text: str, share: float) -> None:
    """Nobody listens."""


def advise_on(ground: Ground, say: Told) -> Advice:
    """The advice, once everything is prepared."""
    goal, situation = ground.goal, ground.situation
    pilots = Pilots(ground.bench, [ground.entry(candidate, 0) for candidate in ground.candidates])
    fastest = min(c.rates.of(goal.objective) for c in ground.candidates)
    most = MOST_TRAININGS * (situation.stop.iterations or ground.longest / fastest)
    race = Race(pilots, Limits(most, ground.longest), goal.budget, say)
    race.run()
    tried = [Tried(*each) for each in zip(ground.candidates, pilots.courses, race.prospects(), strict=True)]
    if all(one.course.lost for one in tried):  # an extrapolation from them would be made of nothing
        rates = sorted({candidate.lr for candidate in ground.candidates})
        raise SpecError(
            f"optimizer.lr: {situation.optimizer.lr:g} is too large; every pilot diverged, with rates of {rates[0]:g} "
            f"to {rates[-1]:g}; take a much smaller one and ask again"
        )
    edge = Edge(ground, tried, say)
    edge.search()
    finals = Finals(ground, tried, pilots.trainings + edge.trainings)
    say(f"finalists: {len(finals.finalists)}, with other randomness", RACE_SHARE)
    best = finals.run()
    for _ in range(STEPS):  # repetitions may have put one at the edge first
        further = edge.step(best.candidate, best.mean)
        if further is None or (next_best := finals.run_with(further)) is best:
            break
        best = next_best
    spent = pilots.trainings + edge.trainings
    reached = best.arrived or goal.budget is not None
    sure = surety(best, finals.finalists) * (CAUTION if reached else 0.5)
    return Advice(ground, best, finals.finalists, tried, sure, spent + finals.trainings)


def surety(best: Finalist, finalists: list[Finalist]) -> float:
    """The probability that no other finalist is really more than 10 % better, with normal errors of the log means."""
    spread, sure = log_spread([finalist.values for finalist in finalists]), 1.0
    for other in finalists:
        if other is not best and other.values and best.mean > 0 and isfinite(other.mean):
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
