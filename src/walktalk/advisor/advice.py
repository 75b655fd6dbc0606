"""The advice: from a situation and a goal to an algorithm, its settings, what it will cost, why, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, nan
from typing import Any

import pandas as pd

from walktalk.advisor.candidates import Candidate
from walktalk.advisor.carry_out import code, run, study_of
from walktalk.advisor.edge import STEPS, Edge
from walktalk.advisor.finals import Finalist, Finals, Tried
from walktalk.advisor.goal import OBJECTIVES, Goal
from walktalk.advisor.ground import Ground, survey
from walktalk.advisor.prediction import Prediction, predict
from walktalk.advisor.race import RACE_SHARE, Told
from walktalk.advisor.reach import first_arrival, hold_race, without_target
from walktalk.advisor.situation import Situation, of_study
from walktalk.advisor.unscaled import unscaled
from walktalk.advisor.words import headline, html
from walktalk.errors import SpecError
from walktalk.runtimes.meaning import Stop
from walktalk.runtimes.simulator import Simulation
from walktalk.studies import StudySpec

SMALLER = (1.0, 1 / 27, 1 / 729, 1 / 19683)  # of the study's learning rate, until not all pilots diverge
CAUTION = 0.95  # a pilot that was left waiting may have been the best after all


@dataclass(frozen=True, repr=False)
class Advice:
    """What to do, and what it will cost."""

    ground: Ground  # what was known before the pilots
    finalist: Finalist  # the advised candidate, with the runs that it was tried in
    rivals: list[Finalist]  # all that were measured to the end, the advised one among them
    tried: list[Tried]  # every candidate's pilot, and where it was heading
    sure: float  # probability of being within 10 % of the best candidate
    trainings: int  # what the advice itself took
    diverged: bool = False  # whether every pilot did with the study's own learning rate, and smaller ones were taken
    missed: float | None = None  # the target that no pilot reached, in place of which the lowest loss is advised

    @property
    def best(self) -> Candidate:
        """The advised algorithm and its learning rate."""
        return self.finalist.candidate

    @property
    def reached(self) -> bool:
        """Whether a pilot really got there; else it is extrapolated."""
        return self.missed is None and (self.finalist.arrived or self.ground.goal.budget is not None)

    @cached_property
    def predictions(self) -> dict[str, Prediction]:
        """What a run will take on each axis until it stops, and its loss there, with their 95 % intervals."""
        ends, goal = self.finalist.ends, self.ground.goal
        if goal.budget is None and (not self.reached or not ends):
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

    @cached_property
    def epsilon(self) -> float | None:
        """ε of the node that trains most, in a run of the expected length; None where nothing protects the data."""
        privacy, setup = self.best.protocol.privacy, self.ground.bench.setup
        length = self.predictions["iterations"].value
        if privacy is None or not isfinite(length):
            return None
        stop = Stop(iterations=max(1, round(length)))
        simulation = Simulation(replace(setup, protocol=self.best.protocol, stop=stop, keep_trace=False))
        simulation.advance()
        return privacy.epsilon(max(simulation.interpreter.releases.values(), default=0))

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
    diverged, rates = 0, list[float]()
    for smaller in SMALLER:
        try:
            ground = survey(situation, goal, wanted=algorithms, model_bytes=model_bytes, smaller=smaller)
            advice = advise_on(ground, say)
        except AllDiverged as error:
            diverged, rates = diverged + error.trainings, [*rates, *error.rates]
            say("all diverged; smaller learning rates", 0.0)
        else:
            return replace(advice, trainings=advice.trainings + diverged, diverged=smaller < 1.0)
    raise SpecError(
        f"optimizer.lr: {situation.optimizer.lr:g} is too large; every pilot diverged, with rates of {min(rates):g} "
        f"to {max(rates):g}; take a much smaller one and ask again{unscaled(situation.task)}"
    )


def silent(text: str, share: float) -> None:
    """Nobody listens."""


def advise_on(ground: Ground, say: Told) -> Advice:
    """The advice, once everything is prepared."""
    asked = ground.target
    ground, pilots, race = hold_race(ground, say)
    spent, missed = pilots.trainings, None
    if all(course.lost for course in pilots.courses):  # an extrapolation from them would be made of nothing
        raise AllDiverged(ground, spent)
    if ground.goal.budget is None and not isfinite(first_arrival(pilots)):
        say("the target is out of reach; how low a run gets instead", 0.0)
        missed = asked
        ground, pilots, race = hold_race(without_target(ground), say)
        spent += pilots.trainings
    tried = [Tried(*each) for each in zip(ground.candidates, pilots.courses, race.prospects(), strict=True)]
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
    spent += edge.trainings + finals.trainings
    reached = missed is None and (best.arrived or ground.goal.budget is not None)
    sure = finals.surety(best) * (CAUTION if reached else 0.5)
    return Advice(ground, best, finals.finalists, tried, sure, spent, missed=missed)


class AllDiverged(SpecError):
    """No pilot has kept a loss that is a number, or near one."""

    def __init__(self, ground: Ground, trainings: int) -> None:
        self.rates = [candidate.lr for candidate in ground.candidates]
        self.trainings = trainings
        super().__init__("every pilot diverged")
