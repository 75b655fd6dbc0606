"""From a specification to the things it names: graph, task, protocols, timing, stop, learning-rate schedule.

Graph and data depend on the study's seed only, not on the repetition: repetitions differ in what happens, not in where.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from walktalk.core.errors import DataError, SpecError, UnavailableError
from walktalk.core.seeds import Seed
from walktalk.core.settings import misfit
from walktalk.graphs import Graph, GraphLike, Sites, as_graph, build
from walktalk.learning import (
    Arithmetic,
    EvaluationSamples,
    LoopTrainer,
    Schedule,
    StudyOptimizer,
    Task,
    Trainer,
    row_optimizer,
    tasks,
)
from walktalk.protocols import Protocol
from walktalk.records import HistoryRow, TraceRow
from walktalk.runtimes.semantics import Evaluate, Objective, OptimizerState, Stop
from walktalk.runtimes.simulator import (
    FaultPlan,
    NetworkTiming,
    PoissonTiming,
    RunSetup,
    Timing,
    absences,
    knows_everybody,
    of_each,
)
from walktalk.studies.spec import EpochsSpec, StudySpec, TimingSpec

# -- One run of a study: under which conditions, as it is planned, how far it is, what it leaves ----------------------


@dataclass(frozen=True)
class AlgorithmPlan:
    """One algorithm of a study, ready to run."""

    label: str  # in tables, legends and folder names
    protocol: Protocol
    lr: float  # its own, or the study's
    optimizer_state: OptimizerState = "visit"  # likewise: where the optimizer's state lives between two visits


@dataclass(frozen=True)
class Conditions:
    """What all runs of a study have in common."""

    graph: Graph
    model_bytes: int  # of one model on the wire
    state_bytes: int  # of one optimizer state on the wire
    stop: Stop
    timing: Timing
    evaluate: Evaluate
    rate: Callable[[float], float]  # progress -> factor on the learning rate
    local_steps: int = 1  # of a training, where a protocol does not say
    statistics_bytes: int = 0  # of those of a model, that codecs leave as they are
    objective: Objective = field(default_factory=Objective)  # what is minimized
    private: bool = False  # whether parts of models are, in the states of nodes

    def setup(self, plan: AlgorithmPlan, root: Seed, repetition: int = 0, faults: FaultPlan | None = None) -> RunSetup:
        """One run under these conditions.

        Args:
            plan: The algorithm.
            root: The study's seed; the run's own is a child of it, by label and repetition.
            repetition: Counted from 0.
            faults: What goes wrong; nothing, if left out.
        """
        return RunSetup(
            protocol=plan.protocol,
            graph=self.graph,
            seed=root.child("run", plan.label, repetition),
            stop=self.stop,
            timing=self.timing,
            evaluate=self.evaluate,
            lr=plan.lr,
            schedule=self.rate,
            model_bytes=self.model_bytes,
            state_bytes=self.state_bytes,
            optimizer_state="node" if self.private else plan.optimizer_state,
            local_steps=self.local_steps,
            statistics=self.statistics_bytes > 0,
            statistics_bytes=self.statistics_bytes,
            faults=faults or FaultPlan(),
            objective=self.objective,
        )


@dataclass(frozen=True)
class Progress:
    """How far a study is: what a progress bar shows."""

    done: int  # iterations over all runs
    total: int  # estimate where runs end by time or bits
    iteration: int  # of the run that is furthest
    time: float  # virtual seconds, of the run that is furthest
    bits: float  # of the run that has sent most
    loss: dict[str, float]  # algorithm -> last training loss, mean over repetitions
    phase: str  # what is being done
    rows: tuple[HistoryRow, ...] = ()  # evaluations since the report before
    words: tuple[str, ...] = ()  # what a person should know at once, since the report before


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study: one algorithm, one repetition."""

    label: str
    repetition: int
    setup: RunSetup
    initial: Tensor  # the model that it starts from, as a row


class Best(NamedTuple):
    """The best model that was measured in a run."""

    row: np.ndarray  # the model
    iteration: int  # when it was measured
    measure: str  # by which it is the best, such as "valid_loss"
    value: float  # of that measure
    is_mean: bool  # whether it is the mean over walks or nodes, not the model that the algorithm puts out


@dataclass
class RunRecord:
    """What one run leaves: history, trace, model, and how much it did."""

    label: str
    repetition: int
    history: list[HistoryRow] = field(default_factory=list, repr=False)
    trace: list[TraceRow] = field(default_factory=list, repr=False)  # empty where it went to a file
    output: Tensor | None = field(default=None, repr=False)  # the aggregated model at the end, as a row
    trainings: int = 0
    met_target: bool = False
    noted: int = 0  # lines of the trace until the target was met
    nodes: int = 0
    aggregated_at: int | None = None  # the iteration in which the aggregator's copy was last brought up to date
    family: str = ""  # of the protocol
    best: Best | None = field(default=None, repr=False)  # the best model that was measured
    members: dict[int, Tensor] = field(default_factory=dict, repr=False)  # own models, where each is measured at sites
    states: np.ndarray | None = field(default=None, repr=False)  # of all nodes at the end; private parts are in there


# -- From a specification to the things it names: graph, task, protocols, timing, stop, learning-rate schedule --------


def build_graph(spec: StudySpec) -> Graph:
    """The study's graph, with its sites if it has any."""
    network = spec.network
    given = dict(network.parameters)
    if network.sites is not None:
        given["sites"] = network.sites
    graph = build(network.topology, network.nodes, seed=Seed(spec.seed).child("graph"), **given)
    if graph.sites is None:
        return graph
    return replace(graph, sites=_overridden(graph.sites, spec.timing))


def build_protocols(spec: StudySpec, nodes: int | None = None) -> list[AlgorithmPlan]:
    """The algorithms, checked against the number of nodes where that is known."""
    nodes = spec.network.nodes if nodes is None else nodes
    plans = []
    for place, algorithm in enumerate(spec.algorithms):
        protocol = algorithm.protocol()
        if nodes is not None:
            try:
                protocol.check(nodes)
            except SpecError as error:
                raise SpecError(f"algorithms.{place}.{error}") from error
        lr = spec.optimizer.lr if algorithm.lr is None else algorithm.lr
        plans.append(AlgorithmPlan(algorithm.title, protocol, lr, spec.state_of(algorithm)))
    return plans


def build_timing(spec: StudySpec) -> Timing:
    """The timing model, for the simulator."""
    timing = spec.timing
    if timing.model == "poisson":
        return PoissonTiming(timing.d)
    given = {name: getattr(timing, name) for name in ("latency", "bandwidth", "node_bandwidth", "jitter", "slow_start")}
    ends = {name: getattr(timing, name) for name in ("up", "down")}
    given |= {name: tuple(rates) if isinstance(rates, list) else rates for name, rates in ends.items()}
    return NetworkTiming(
        compute=timing.compute,
        spread=timing.spread,
        straggler_share=timing.stragglers.share,
        straggler_slowdown=timing.stragglers.slowdown,
        **{name: value for name, value in given.items() if value is not None},
    )


def build_stop(spec: StudySpec) -> Stop:
    """When each run ends."""
    return Stop(**spec.stop.model_dump())


def keeps_memory(spec: StudySpec) -> bool:
    """Whether the optimizer's memory stays at the node, together with a private part of the model."""
    states = {spec.state_of(algorithm) for algorithm in spec.algorithms}
    if "walk" in states:
        raise SpecError(
            "training.optimizer_state: walk would send what the optimizer remembers of private parts; take node or "
            "visit"
        )
    if len(states) > 1:
        raise SpecError("optimizer_state: with private parts all algorithms of a study need the same, node or visit")
    return states == {"node"}


def check_links(spec: StudySpec, graph: Graph) -> None:
    """A slow link has to be there: one that is not would slow nothing, and the person would wonder."""
    for place, entry in enumerate(spec.faults):
        if entry.link is not None and entry.link[1] not in graph.neighbours(entry.link[0]):
            a, b = entry.link
            near = ", ".join(map(str, graph.neighbours(a)[:20]))
            raise SpecError(f"faults.{place}.link: nodes {a} and {b} are not neighbours; neighbours of {a}: {near}")


def build_faults(spec: StudySpec, repetition: int, graph: Graph) -> FaultPlan:
    """What goes wrong in a repetition, and who is away: the same for all its algorithms, also by chance."""
    away = () if spec.availability is None else absences(spec.availability, graph.nodes, graph.names)
    return FaultPlan((*(entry.fault() for entry in spec.faults), *away), Seed(spec.seed).child("faults", repetition))


def check_availability(spec: StudySpec, graph: Graph) -> None:
    """That somebody is there at any time, as soon as it can be known: names of nodes may come with the data."""
    if spec.availability is not None and knows_everybody(spec.availability, graph.names):
        absences(spec.availability, graph.nodes, graph.names)


def build_evaluate(spec: StudySpec) -> Evaluate:
    """When each run is measured."""
    given = spec.evaluate
    also = {"validation": given.validation, "best": given.best}
    return Evaluate(given.every, given.seconds, given.model, members=bool(given.members), **also)  # type: ignore[arg-type]


def build_rate(spec: StudySpec) -> Callable[[float], float]:
    """The factor on the learning rate, from the progress of a run."""
    schedule = spec.schedule
    return Schedule(schedule.warmup, tuple(schedule.decay_at), schedule.factor, schedule.cosine_to).factor_at


def build_task(spec: StudySpec, nodes: int | None = None) -> Task:
    """The task, its data split over the nodes; the split is the study's, the same in every repetition."""
    count = nodes if nodes is not None else spec.network.nodes
    if count is None:
        count = build_graph(spec).nodes
    return tasks.build(spec.task.name, nodes=count, seed=Seed(spec.seed).child("data"), **spec.task.settings)


def build_task_of(spec: StudySpec, nodes: int, node: tasks.Node) -> Task:
    """The task of one node alone, for a machine that has no other data than its own."""
    seed = Seed(spec.seed).child("data")
    return tasks.build_part(spec.task.name, nodes, seed, node, **spec.task.settings)


def work_of_nodes(spec: StudySpec, task: Task, node: tasks.Node | None = None) -> tuple[Counted, Counted]:
    """Batch size and local steps of a training: one number each, or one for each part of the task.

    Args:
        spec: The study.
        task: The whole of it, or the part of one node.
        node: Whose part, where the task is one node's.
    """
    training = spec.training
    if isinstance(training.batch_size, int) and isinstance(training.local_steps, int):
        return training.batch_size, training.local_steps
    batches = _of_parts("training.batch_size", training.batch_size, task, node)
    if isinstance(training.local_steps, EpochsSpec):
        over = training.local_steps.epochs
        return batches, [
            max(1, round(over * len(part) / batch)) for part, batch in zip(task.parts, batches, strict=True)
        ]
    return batches, _of_parts("training.local_steps", training.local_steps, task, node)


def held_out(task: Task, share: float | None) -> tuple[Task, list[np.ndarray] | None]:
    """The task without a share of every node's samples, evenly chosen; and those of each node, to validate on."""
    if share is None:
        return task, None
    trained, kept = [], []
    for number, part in enumerate(task.parts):
        wanted = max(1, round(share * len(part)))
        if wanted >= len(part):
            name = number if task.names is None else task.names[number]
            raise SpecError(
                f"evaluate.validation: {share:g} leaves node {name} nothing to train on; it has {len(part)} samples"
            )
        places = np.unique(np.linspace(0, len(part) - 1, wanted).round().astype(int))
        kept.append(np.asarray(part)[places])
        trained.append(np.delete(np.asarray(part), places))
    return replace(task, parts=trained), kept


Counted: TypeAlias = int | list[int]


def _of_parts(name: str, given: int | list[int] | dict[str, int], task: Task, node: tasks.Node | None) -> list[int]:
    """A number for each part of a task, of one for all, a list with one for each node, or numbers by name."""
    if node is None or task.nodes > 1 or isinstance(given, int):
        return [int(one) for one in of_each(name, given, task.nodes, task.names)]
    called = node.name or str(node.number)
    each: dict[str, int] = given if isinstance(given, dict) else {str(number): one for number, one in enumerate(given)}
    found = each.get(called, each.get(str(node.number)))
    if found is None:
        raise SpecError(f"{name}: node {called!r} is missing; give one number for all, or one for each node")
    return [found]


def build_trainer(
    spec: StudySpec, task: Task, device: str = "auto", samples: int | None = None, node: tasks.Node | None = None
) -> Trainer:
    """What trains the models of a study.

    Args:
        spec: The study; its batch size, local steps, optimizer, precision and buffers count.
        task: What is learned: the whole of it, or the part of one node.
        device: auto, cpu or cuda.
        samples: Of the training data, for a measurement; the study's own number, if left out.
        node: Whose data it is, where the task is the part of one node.
    """
    if isinstance(task.model, tasks.Outside):
        raise UnavailableError(
            "task.name: outside is trained by your own script at every node of a cluster (wt.site); in the simulator "
            "there is none"
        )
    task, validation = held_out(task, spec.evaluate.validation)
    if spec.evaluate.best_by in ("test_loss", "test_accuracy") and task.test is None and node is None:
        raise SpecError(
            f"evaluate.best: {spec.evaluate.best_by} needs test samples, and the task has none; take train_loss"
        )
    batches, steps = work_of_nodes(spec, task, node)
    make: Callable[..., Trainer] = LoopTrainer if isinstance(task, tasks.LoopTask) else Trainer
    trainer = make(
        task,
        batch_size=batches,
        local_steps=steps,
        optimizer=StudyOptimizer(
            row_optimizer(spec.optimizer.build(), spec.training.clip_norm),
            spec.optimizer.lr,
            keeps_memory(spec) if task.private else True,
        ),
        device=pick_device(device),
        evaluation=EvaluationSamples(
            spec.evaluate.samples if samples is None else samples,
            spec.evaluate.nodes if task.nodes > 1 else None,  # one node has its own samples only
            evaluation_weights(spec.minimizes, task),
        ),
        arithmetic=Arithmetic(spec.training.precision),
        buffers=spec.training.buffers,
        validation=validation,
        best_by=spec.evaluate.best_by,
    )
    if trainer.parameters < trainer.width and any(each.protocol().privacy is not None for each in spec.algorithms):
        raise SpecError(
            "training.buffers: travel would send running statistics of the data, which privacy does not protect; use "
            "batch"
        )
    return trainer


def evaluation_weights(objective: Objective, task: Task) -> tuple[int, ...] | None:
    """How much the loss of every node counts in that of all; None where every sample counts alike."""
    if task.nodes == 1 or objective.weights in ("published", "samples"):
        return None
    return objective.counts([len(part) for part in task.parts], task.names)


def pick_device(name: str) -> str:
    """The device of that name; "auto" takes a GPU where there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UnavailableError(f"device: {name} is not available here; allowed: auto, cpu")
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise misfit("device", name, "auto, cpu, cuda", UnavailableError)
    return name


def _overridden(sites: Sites, timing: TimingSpec) -> Sites:
    """A latency or bandwidth in the specification replaces the sites' own between sites; within a site, it stays."""
    if timing.bandwidth is not None:
        sites = sites.with_bandwidth(between=timing.bandwidth)
    if timing.latency is not None:
        local = np.eye(len(sites.names), dtype=bool)
        sites = replace(sites, latency=np.where(local, sites.latency, timing.latency))
    return sites


# A task's nodes are the graph's: as many, and by name where both have names.


def matched(task: Task, graph: GraphLike) -> tuple[Task, Graph]:
    """The task with its data in the order of the graph's nodes, and the graph with the names that either has."""
    graph = as_graph(graph)
    if graph.names is not None and task.names is not None:
        return task.ordered(graph.names), graph
    if task.nodes != graph.nodes:
        raise DataError(
            f"the task is split over {task.nodes} nodes, but the graph has {graph.nodes}; make them equal, as with "
            f"network.nodes: {task.nodes}"
        )
    if graph.names is not None:
        return task.ordered(graph.names), graph
    return task, graph if task.names is None else graph.named(task.names)
