"""`train` and `compare`: one run, or several algorithms as a study, in Python; and `forecast`, what a run will take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from typing_extensions import Unpack

from walktalk.api.arguments import errors_name_arguments, name_from, run_to_end, study_from_arguments
from walktalk.api.callbacks import Audience
from walktalk.api.results import Compared, Run
from walktalk.api.training import (
    CompareKeywords,
    RunOptions,
    Training,
    TrainingKeywords,
    TrainKeywords,
    lists_keywords,
    split_keywords,
)
from walktalk.core.errors import SpecError
from walktalk.runtimes.semantics import Evaluate
from walktalk.runtimes.simulator import Simulation
from walktalk.studies import AlgorithmLike, NetworkLike, TaskLike
from walktalk.studies.planning import Conditions, build_faults, build_rate, build_stop, build_timing


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
        audience.ended(run)
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
        audience.ended(compared)
    return compared


@dataclass(frozen=True)
class Forecast:
    """What a run will take, as its schedule says before anything is trained."""

    iterations: int  # local trainings, over all nodes
    time: float  # virtual seconds
    bits: float  # sent by all nodes together
    events: int  # how many events the schedule has


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
    return Forecast(simulation.iteration, simulation.agenda.now, simulation.bytes * 8.0, simulation.events)
