"""The advice: from a situation and a goal to an algorithm, its settings, what it will cost, why, and how sure it is."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from math import ceil, isfinite, nan
from typing import Any

import pandas as pd
import yaml

from walktalk.advisor.finals import Finalist, Prediction, predict
from walktalk.advisor.pilots import Tried, stop_at
from walktalk.advisor.situation import OBJECTIVES, Candidate, InPython, amount, interval
from walktalk.advisor.survey import Survey
from walktalk.core.errors import SpecError
from walktalk.core.old_names import warn_of
from walktalk.protocols import PROTOCOLS, Private, Protocol
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Simulation
from walktalk.studies import SGD, StudySpec, make_spec, run_study, spec_mapping

ROOM = 1.5  # times the most that 95 % of runs need: so far a run may go until it gives up
NAMES = {"OptimizerSpec": "Optimizer"}  # classes that have another name at the front door
TABLE = 8  # lines of a ranking that a notebook shows


@dataclass(frozen=True, repr=False)
class Advice:
    """An advice: which algorithm with which learning rate, what it will cost, and how sure that is."""

    survey: Survey  # what was known before the pilots
    finalist: Finalist  # the advised candidate, with the runs that it was tried in
    rivals: list[Finalist]  # all that were measured to the end, the advised one among them
    tried: list[Tried]  # every candidate's pilot, and where it was heading
    sure: float  # probability of being within 10 % of the best candidate
    trainings: int  # what the advice itself took
    diverged: bool = False  # whether every pilot did with the study's own learning rate, and smaller ones were taken
    missed: float | None = None  # the target that no pilot reached, in place of which the lowest loss is advised

    @property
    def ground(self) -> Survey:
        """The name that `survey` had before; it goes with the next release."""
        warn_of("Advice.ground", "Advice.survey")
        return self.survey

    @property
    def best(self) -> Candidate:
        """The advised algorithm and its learning rate."""
        return self.finalist.candidate

    @property
    def reached(self) -> bool:
        """Whether a pilot really got there; else it is extrapolated."""
        return self.missed is None and (self.finalist.arrived or self.survey.goal.budget is not None)

    @cached_property
    def predictions(self) -> dict[str, Prediction]:
        """What a run will take on each axis until it stops, and its loss there, with their 95 % intervals."""
        ends, goal = self.finalist.ends, self.survey.goal
        if goal.budget is None and (not self.reached or not ends):
            per = self.best.rates
            cost = predict(self.finalist.values, guessed=True).times(1 / max(per.of(goal.objective), 1e-300))
            found = {axis: cost.times(per.of(axis)) for axis in OBJECTIVES}
        else:
            found = {axis: predict([end.of(axis) for end in ends]) for axis in OBJECTIVES}
        if goal.budget is None:
            return found | {"loss": Prediction(*3 * (self.survey.target,))}
        exact = goal.budget
        return found | {
            goal.objective: Prediction(exact, exact, exact),
            "loss": predict([end.loss for end in ends] or self.finalist.values),
        }

    @property
    def answer(self) -> Prediction:
        """The cost in the objective's unit; with a budget, the loss."""
        return self.predictions[self.survey.goal.objective if self.survey.goal.budget is None else "loss"]

    @property
    def cost(self) -> float:
        """The expected cost in the objective's unit, to the target; the budget where there is one."""
        return self.predictions[self.survey.goal.objective].value

    @property
    def loss(self) -> float:
        """The training loss that a run ends at, at its expected cost."""
        return self.predictions["loss"].value

    @property
    def low(self) -> float:
        """95 % interval of the cost of one run; of its loss, with a budget."""
        return self.answer.low

    @property
    def high(self) -> float:
        """The upper end of the interval of the prediction."""
        return self.answer.high

    @cached_property
    def epsilon(self) -> float | None:
        """ε of the node that trains most, in a run of the expected length; None where nothing protects the data."""
        privacy, setup = self.best.protocol.privacy, self.survey.bench.setup
        length = self.predictions["iterations"].value
        if privacy is None or not isfinite(length):
            return None
        stop = Stop(iterations=max(1, round(length)))
        simulation = Simulation(replace(setup, protocol=self.best.protocol, stop=stop, keep_trace=False))
        simulation.advance()
        return simulation.interpreter.releases.epsilon

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
                predict(final.values, guessed=not final.arrived and self.survey.goal.budget is None),
                len(final.values),
            )
        else:
            floor = 0.0 if self.survey.goal.budget is None else self.survey.bench.scale.floor
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


def stop_of(advice: Advice) -> Stop:
    """When a run ends: at the budget, or at the target, with enough room to get there.

    Where the learning rate follows a schedule, the study's own end stays: the schedule is measured by it.
    """
    survey, found = advice.survey, advice.predictions
    goal, stop = survey.goal, survey.situation.stop
    if goal.budget is not None:
        return stop_at(goal.objective, goal.budget)
    room = {axis: ROOM * found[axis].high for axis in ("iterations", "time", "bits")}
    if not survey.situation.constant_rate or not isfinite(room["iterations"]):
        return dataclasses.replace(stop, target_loss=survey.target)
    iterations = None if stop.iterations is None else max(stop.iterations, ceil(room["iterations"]))
    time, bits = (
        None if limit is None else max(limit, room[axis]) for axis, limit in (("time", stop.time), ("bits", stop.bits))
    )
    return Stop(iterations=iterations, time=time, bits=bits, target_loss=survey.target)


def entry_of(protocol: Protocol, lr: float) -> dict[str, Any]:
    """The entry under `algorithms`: its name, the settings that are not the usual ones, and the learning rate."""
    core = protocol.core
    around = {name: value for name, value in protocol.settings.items() if name not in core.settings}
    if protocol.privacy is not None:
        around["privacy"] = {name: value for name, value in dataclasses.asdict(protocol.privacy).items() if value}
    return {"name": name_in_specifications(core), **unusual(core), **around, "lr": lr}


def name_in_specifications(protocol: Protocol) -> str:
    """The registered name, or where the class is."""
    kind = type(protocol)
    if PROTOCOLS.get(kind.name) is kind:
        return kind.name
    return f"{kind.__module__}:{kind.__qualname__}"


def unusual(thing: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults."""
    found = {}
    for one in dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ():
        default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
        value = getattr(thing, one.name)
        if one.init and value != default:
            found[one.name] = value
    return found


def changes(advice: Advice) -> dict[str, Any]:
    """The keys of a study that the advice changes."""
    stop = {name: value for name, value in dataclasses.asdict(stop_of(advice)).items() if value is not None}
    return {"algorithms": [entry_of(advice.best.protocol, advice.best.lr)], "stop": stop}


def command(advice: Advice, study: str, given: list[str]) -> str:
    """The command that runs the study with the advised algorithm alone, in a folder of its own: in the study's, where
    its results may be already, it would be refused as another study.

    Args:
        advice: What `advise_study` gave.
        study: The file or preset, as on the command line.
        given: What was set there with --set.
    """
    own = [f"{key}={flow(value)}" for key, value in changes(advice).items()]
    folder = f"out/{advice.survey.situation.spec.name}-least-{advice.survey.goal.objective}"
    setting = [part for each in (*given, *own) for part in ("--set", each)]
    return shlex.join(["walktalk", "run", study, "--out", folder, *setting])


def flow(value: Any) -> str:
    """A value as YAML on one line, for `--set`."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**9).strip()


def study_of(advice: Advice) -> StudySpec:
    """The study with the advised algorithm alone, ending at the target or the budget."""
    situation = advice.survey.situation
    if situation.in_python is not None:
        raise SpecError("spec: this advice is for things in Python, not for a study; advice.run() carries it out")
    return make_spec({**spec_mapping(situation.spec), **changes(advice)})


def arguments(advice: Advice, given: InPython) -> dict[str, Any]:
    """The arguments of `train` beside task, protocol and graph."""
    optimizer = dataclasses.replace(advice.survey.situation.optimizer, lr=advice.best.lr)
    return {**given.arguments, "optimizer": optimizer, "stop": stop_of(advice)}


def code(advice: Advice) -> str:
    """Python that carries the advice out; of a study, `advice` itself has the specification."""
    given = advice.survey.situation.in_python
    if given is None:
        return "import walktalk as wt\n\nresult = wt.run_study(advice.spec)"
    protocol = advice.best.protocol
    kind = type(protocol.core if isinstance(protocol, Private) else protocol)
    home = "walktalk.protocols" if kind.__module__.startswith("walktalk.protocols") else kind.__module__
    lines = [f"    {name}={as_python(value)}," for name, value in arguments(advice, given).items()]
    called = made(protocol)
    imports = ["import walktalk as wt", f"from {home} import {kind.__name__}", ""]
    return "\n".join([*imports, "run = wt.train(", "    task,", f"    {called},", "    graph,", *lines, ")"])


def made(protocol: Protocol) -> str:
    """The Python expression that makes a protocol."""
    if isinstance(protocol, Private):
        given = {name: value for name, value in dataclasses.asdict(protocol.spends).items() if value is not None}
        return f"wt.private({made(protocol.inner)}, {_settings(given)})"
    return f"{type(protocol).__name__}({_settings(unusual(protocol))})"


def as_python(value: Any) -> str:
    """What makes a value, with names from walktalk's front door."""
    if value == dataclasses.replace(SGD(), lr=getattr(value, "lr", 0.05)):
        return f"wt.SGD(lr={value.lr!r})"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(as_python, value))}]"
    if dataclasses.is_dataclass(value):
        name = type(value).__name__
        return f"wt.{NAMES.get(name, name)}({_settings(unusual(value))})"
    return repr(value)


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def run(advice: Advice, changed: dict[str, Any]) -> Any:
    """Carry it out: a study's with `run_study`, else with `train`."""
    given = advice.survey.situation.in_python
    if given is None:
        return run_study(study_of(advice), **changed)
    return given.train(given.task, advice.best.protocol, given.graph, **{**arguments(advice, given), **changed})


def headline(advice: Advice) -> str:
    """In one line: which algorithm, which learning rate, and what it will cost."""
    goal, best, answer = advice.survey.goal, advice.best, advice.answer
    what = f"{best.protocol.title}, learning rate {best.lr:g}"
    if goal.budget is not None:
        loss = f"loss {answer.value:.3g} (95 %: {answer.low:.3g} to {answer.high:.3g})"
        out = "" if advice.missed is None else f"; {advice.missed:.4g} is out of reach"
        return f"{what}: {loss} for {amount(goal.objective, goal.budget)}{out}"
    cost, span = amount(goal.objective, answer.value), interval(goal.objective, answer.low, answer.high)
    sure = "" if advice.reached else ", extrapolated"
    return f"{what}: {cost} (95 %: {span}) to a loss of {advice.loss:.4g}{sure}"


def html(advice: Advice) -> str:
    """The advice as HTML for a notebook: the line, the best of the ranking, and the code that carries it out."""
    table = advice.ranking.head(TABLE).to_html(index=False, float_format=lambda value: f"{value:.4g}")
    return f"<p><b>{escape(headline(advice))}</b></p>{table}<pre>{escape(advice.code)}</pre>"
