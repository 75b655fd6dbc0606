"""`train` and `compare`: one run, or several algorithms as a study; `forecast`, what a run will take; and `advise`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from walktalk.api.callbacks import Audience, warn
from walktalk.api.progress import wanted_progress
from walktalk.api.results import Compared, Run
from walktalk.api.training import (
    AdviceOptions,
    AdviseKeywords,
    CompareKeywords,
    RunOptions,
    Training,
    TrainingKeywords,
    TrainKeywords,
    errors_name_arguments,
    lists_keywords,
    split_keywords,
)
from walktalk.core.errors import SpecError, UnavailableError
from walktalk.core.lazy import later
from walktalk.core.old_names import renamed_keywords
from walktalk.core.seeds import Seed
from walktalk.core.settings import misfit
from walktalk.learning import Task, tasks
from walktalk.records import folder_name
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import Simulation
from walktalk.studies import (
    AlgorithmLike,
    Execution,
    Foundation,
    Interrupted,
    NetworkLike,
    Progress,
    StudyResult,
    TaskLike,
    foundation_from_python,
    run_foundation,
)
from walktalk.studies.planning import Conditions, build_faults, build_rate, build_stop, build_timing
from walktalk.studies.results import study_result
from walktalk.studies.spec import (
    evaluate_section,
    faults_section,
    optimizer_section,
    schedule_section,
    stop_section,
    timing_section,
)

if TYPE_CHECKING:
    from walktalk import advisor, report
else:
    advisor = later("walktalk.advisor")  # a second, for those who ask for advice
    report = later("walktalk.report")


@lists_keywords(TrainKeywords, Training, RunOptions)
def train(
    task: TaskLike,
    protocol: AlgorithmLike,
    graph: NetworkLike,
    training: Training | None = None,
    **keywords: Unpack[TrainKeywords],
) -> Run:
    """Train one model with an algorithm on a graph.

    How it is trained may be given as a `Training`, or keyword by keyword.

    Args:
        task: What is learned, and who has which samples; one part for each node of the graph. Or its name.
        protocol: The algorithm: `MultiWalk`, `AsyncGossip`, `SyncGossip`, `Centralized` or one of your own; any
            other by its name in `walktalk algorithms`, `"d2"`, or with settings, `{"name": "fedavg", "steps": 10}`.
        graph: Who may talk to whom: a graph of ours or networkx's, or a topology's name.
        training: How the model is trained; keywords beside it replace its fields.
    """
    if not isinstance(protocol, (str, Mapping)) and isinstance(protocol, Sequence):
        raise SpecError("protocol: train runs one algorithm; wt.compare takes a list of them")
    how, rest = split_keywords(train, training, keywords)
    options = RunOptions(**rest)
    base = study_from_arguments(task, protocol, graph, how, {"name": name_from(options.out, "run")})
    audience = Audience(options.callbacks)
    with audience.attending(base.spec), errors_name_arguments():
        result = run_to_end(base, options, audience)
        assert result.trainer is not None
        run = Run(result.runs[0], result.trainer, base, result.folder, options.engine)
        audience.ended(run, result)
    return run


@lists_keywords(CompareKeywords, Training, RunOptions)
def compare(
    task: TaskLike,
    algorithms: AlgorithmLike | Sequence[AlgorithmLike],
    graph: NetworkLike,
    training: Training | None = None,
    *,
    repetitions: int = 1,
    name: str | None = None,
    **keywords: Unpack[CompareKeywords],
) -> Compared:
    """Compare algorithms on one task, one graph and the same seeds: a study, as `walktalk run` makes one.

    How models are trained may be given as a `Training`, or keyword by keyword.

    Args:
        task: What is learned: the object that `train` takes, or its name, as in a specification; with a name
            (`"my_tasks:hospital"`) the study can also travel to other processes.
        algorithms: Protocols, names, or entries as in a specification. A list as a setting stands for one
            algorithm each: `wt.MultiWalk(walks=[1, 4])`.
        graph: Who may talk to whom: a graph of ours or networkx's, or a topology's name.
        training: How models are trained; keywords beside it replace its fields.
        repetitions: Runs of each algorithm, with different randomness.
        name: The study's name; that of its folder unless given.
    """
    how, rest = split_keywords(compare, training, keywords)
    options = RunOptions(**rest)
    keys = {"name": name or name_from(options.out, "compared"), "repetitions": repetitions}
    base = study_from_arguments(task, algorithms, graph, how, keys)
    audience = Audience(options.callbacks)
    with audience.attending(base.spec), errors_name_arguments():
        compared = Compared(run_to_end(base, options, audience), base)
        audience.ended(compared, compared)
    return compared


@dataclass(frozen=True)
class Forecast:
    """What a run will take, as its schedule says before anything is trained."""

    iterations: int  # local trainings, over all nodes
    time: float  # virtual seconds
    bits: float  # sent by all nodes together
    events: int  # how many events the schedule has
    utilization: float = 0.0  # of all nodes' time, the share that they spend in training; the rest they wait


@lists_keywords(TrainingKeywords, Training)
def forecast(
    protocol: AlgorithmLike,
    graph: NetworkLike,
    training: Training | None = None,
    *,
    model_bytes: int,
    state_bytes: int = 0,
    statistics_bytes: int = 0,
    **keywords: Unpack[TrainingKeywords],
) -> Forecast:
    """What `train` with the same arguments will take, for a model of that many bytes on the wire; nothing is trained.

    When things happen never depends on the numbers in a model, so this is exact: it is the schedule of the same run. A
    hundred thousand nodes take seconds. An end by the loss, which only training shows, has no meaning here.

    Args:
        protocol: The algorithm.
        graph: Who may talk to whom.
        training: How the model would be trained; keywords beside it replace its fields.
        model_bytes: Size of one model on the wire.
        state_bytes: Size of one optimizer state on the wire, where it travels with the walk.
        statistics_bytes: The part of a model's bytes that are running statistics (BatchNorm's means and variances),
            which a codec leaves as they are: `run.trainer.statistics_bytes`.
    """
    how, _ = split_keywords(forecast, training, keywords)
    base = study_from_arguments("digits", protocol, graph, replace(how, init=None), {})
    spec = base.spec
    if not isinstance(spec.training.local_steps, int) or not isinstance(spec.training.batch_size, int):
        raise SpecError("forecast: there is no data here to count; give one number as local_steps and as batch_size")
    conditions = Conditions(
        graph=base.graph,
        model_bytes=model_bytes,
        state_bytes=state_bytes,
        stop=build_stop(spec),
        timing=build_timing(spec),
        evaluate=Evaluate(),
        rate=build_rate(spec),
        local_steps=spec.training.local_steps,
        statistics_bytes=statistics_bytes,
    )
    setup = conditions.setup(base.algorithms[0], base.root, 0, build_faults(spec, 0, base.graph))
    simulation = Simulation(replace(setup, keep_trace=False, keep_schedule=False))
    simulation.advance()
    bits, utilization = simulation.bytes * 8.0, simulation.utilization
    return Forecast(simulation.iteration, simulation.agenda.now, bits, simulation.events, utilization)


@renamed_keywords(told="progress")
@lists_keywords(AdviseKeywords, Training, AdviceOptions)
def advise(
    task: TaskLike, graph: NetworkLike, training: Training | None = None, **keywords: Unpack[AdviseKeywords]
) -> advisor.Advice:
    """Advise which algorithm, how many walks, which aggregator and which learning rate: by theory, then short pilots.

    How models are trained may be given as a `Training`, or keyword by keyword; candidates begin at its learning rate.

    Args:
        task: What is learned, and who has which samples: yours, one of ours, or its name.
        graph: Who may talk to whom: a graph of ours or networkx's, or a topology's name.
        training: How models are trained; keywords beside it replace its fields.
    """
    goal_of = {name: keywords.pop(name) for name in ("objective",) if name in keywords}
    how, rest = split_keywords(advise, training, keywords)
    rest |= goal_of
    options = AdviceOptions(**rest)
    if options.budget is not None and options.target_loss is not None:
        raise SpecError("budget and target_loss exclude each other: the lowest loss, or the cheapest way to a loss")
    goal = advisor.Goal(options.objective, options.target_loss, options.budget)
    ending = replace(how, stop=PILOTS_STOP if how.stop is None else how.stop)
    base = study_from_arguments(task, "multi_walk", graph, ending, {"name": "advice"})  # candidates take its place
    situation = advisor.of_foundation(base, options.device, advisor.InPython(train, task, graph, _said(how)))
    return advisor.advise_in(situation, goal, options.algorithms, options.model_bytes, options.progress)


def _said(training: Training) -> dict[str, Any]:
    """The settings that are not the usual ones, beside those that the advice sets itself or that are luck."""
    usual = Training()
    names = [field.name for field in fields(Training) if field.name not in ("optimizer", "stop", "seed")]
    found = {name: getattr(training, name) for name in names}
    return {name: value for name, value in found.items() if value is not None and value != getattr(usual, name)}


# -- From a call in Python to a study, and to its end ------------------------------------------------------------------

CALLER = 3  # frames from `run_to_end` up to who called `train` or `compare`: that is where warnings are from
USUAL_STOP = Stop(iterations=1000)  # where nothing else is said
PILOTS_STOP = Stop(iterations=3000)  # of advise
ENGINES = ("sim", "peers")
SECTIONS: dict[str, Callable[[Any], Any]] = {
    "optimizer": optimizer_section,
    "schedule": schedule_section,
    "timing": timing_section,
    "stop": stop_section,
    "evaluate": evaluate_section,
    "faults": faults_section,
}
"""The fields of `Training` that are sections of a study; of the others, init belongs to the task, seed to the study."""


def study_from_arguments(
    task: TaskLike,
    algorithms: AlgorithmLike | Sequence[AlgorithmLike],
    graph: NetworkLike,
    training: Training,
    keys: Mapping[str, Any],
) -> Foundation:
    """The study that a call in Python asks for.

    Args:
        task: What is learned.
        algorithms: What is compared.
        graph: Who may talk to whom.
        training: How models are trained; None as the value of a field stands for what is usual.
        keys: The study's other keys, such as its name.
    """
    said = {name: value for name, value in training.settings.items() if value is not None}
    seed, init, objective = said.pop("seed"), said.pop("init", None), said.pop("objective", {})
    sections = {name: make(said.pop(name)) for name, make in SECTIONS.items() if name in said}
    sections.setdefault("stop", stop_section(USUAL_STOP))
    if init is not None:
        if not isinstance(task, Task):
            raise SpecError("init: weights can be given to a task that is an object; a task that is named sets its own")
        task = tasks.starting_from(task, init)
    return foundation_from_python(
        task,
        algorithms,
        graph,
        {**keys, "seed": _as_integer(seed), **sections, "objective": objective, "training": said},
    )


def _as_integer(seed: Any) -> Any:
    """A seed as a specification holds it; what is no seed stays, to be refused there."""
    if isinstance(seed, Seed):
        return seed.integer if seed.path else seed.root
    return seed


def name_from(out: str | PathLike[str] | None, otherwise: str) -> str:
    """A study's name: that of its folder, as far as one can be called so."""
    text = folder_name(Path(out).resolve().name) if out is not None else otherwise
    return re.sub(r"^[^A-Za-z0-9]+", "", text)[:100] or otherwise


def run_to_end(base: Foundation, options: RunOptions, audience: Audience) -> StudyResult:
    """Run a study to its end, write its page, and warn of what a person should know about its models."""
    result = _run(base, options, audience)
    for note in result.summary.get("notes", ()):
        warnings.warn(note, stacklevel=CALLER)
    if result.folder is not None:
        report.write_report(result.folder, base)
    return result


def _run(base: Foundation, options: RunOptions, audience: Audience) -> StudyResult:
    if options.engine not in ENGINES:
        raise misfit("engine", options.engine, ", ".join(ENGINES), UnavailableError)
    if (options.resume or options.overwrite) and options.out is None:
        raise UnavailableError("resume and overwrite are about a folder; say which with out='…'")
    on_peers = options.engine == "peers"
    # Who may end a run sees its rows in this process, as the runner measures them; else they come with the reports.
    here = not on_peers and audience.may_end and options.workers in (None, 1)

    with wanted_progress(options.progress, base.spec) as shown:

        def report(progress: Progress) -> None:
            if shown is not None:
                shown(progress)
            warn(progress.words)
            audience.progressed(progress, rows=not here)

        if on_peers:
            return _on_peers(base, options, report)
        how = Execution(
            resume=options.resume,
            overwrite=options.overwrite,
            device=options.device,
            workers=options.workers,
            memory=options.memory,
            progress=report,
            watch=audience.evaluated if here else None,
        )
        try:
            return run_foundation(base, options.out, how)
        except Interrupted as stop:
            return _so_far(base, options, stop)


def _so_far(base: Foundation, options: RunOptions, stop: Interrupted) -> StudyResult:
    """What a single run has come to when somebody stops it; a study of several in a folder is resumed instead."""
    several = len(base.algorithms) * base.spec.repetitions > 1
    if not stop.records or stop.trainer is None or (options.out is not None and several):
        raise KeyboardInterrupt(f"stopped{'' if options.out is None else '; go on with resume=True'}") from stop
    done = max(record.history[-1].iteration for record in stop.records)
    also = "" if options.out is None else "; resume=True goes on from there"
    warnings.warn(f"stopped at iteration {done:,}: what there is so far is given back{also}", stacklevel=CALLER + 2)
    return study_result(base.spec, stop.records, trainer=stop.trainer)


def _on_peers(base: Foundation, options: RunOptions, report: Callable[[Progress], None]) -> StudyResult:
    if base.user_task is not None:
        raise UnavailableError(
            f"engine: on peers every node is a process of its own, to which the task {base.user_task.name!r}, given as "
            "an object, cannot travel; give its name instead, task='module:function'"
        )
    if base.spec.network.topology == "given":
        raise UnavailableError(
            f"engine: on peers every node builds the graph by itself, but {base.graph.name} cannot be written down; "
            "give its name instead, graph='module:function'"
        )
    if options.out is None:
        raise UnavailableError("engine: peers write down what they do; say where with out='…'")
    if options.workers is not None or options.memory is not None:
        raise UnavailableError("workers and memory have no meaning on peers, where a node is a process; leave them out")
    from walktalk.studies.peers import run_on_peers  # needs Zenoh

    return run_on_peers(
        base.spec,
        options.out,
        resume=options.resume,
        overwrite=options.overwrite,
        device=options.device,
        progress=report,
    )
