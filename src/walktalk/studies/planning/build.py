"""From a specification to the things it names: graph, task, protocols, timing, stop, learning-rate schedule.

Graph and data depend on the study's seed only, not on the repetition: repetitions differ in what happens, not in where.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from walktalk.core.errors import DataError, SpecError, UnavailableError
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph, GraphLike, Sites, as_graph, build
from walktalk.learning import Arithmetic, EvaluationSamples, Schedule, Task, Trainer, row_optimizer, tasks
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import FaultPlan, NetworkTiming, PoissonTiming, Timing, absences, knows_everybody
from walktalk.studies.planning.runs import AlgorithmPlan
from walktalk.studies.spec import StudySpec, TimingSpec


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
    return Evaluate(given.every, given.seconds, given.model, members=bool(given.members))


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


def build_trainer(spec: StudySpec, task: Task, device: str = "auto", samples: int | None = None) -> Trainer:
    """What trains the models of a study.

    Args:
        spec: The study; its batch size, local steps, optimizer, precision and buffers count.
        task: What is learned: the whole of it, or the part of one node.
        device: auto, cpu or cuda.
        samples: Of the training data, for a measurement; the study's own number, if left out.
    """
    trainer = Trainer(
        task,
        batch_size=spec.training.batch_size,
        local_steps=spec.training.local_steps,
        optimizer=row_optimizer(spec.optimizer.build(), spec.training.clip_norm),
        device=pick_device(device),
        evaluation=EvaluationSamples(
            spec.evaluate.samples if samples is None else samples,
            spec.evaluate.nodes if task.nodes > 1 else None,  # one node has its own samples only
        ),
        arithmetic=Arithmetic(spec.training.precision),
        buffers=spec.training.buffers,
    )
    if trainer.parameters < trainer.width and any(each.protocol().privacy is not None for each in spec.algorithms):
        raise SpecError(
            "training.buffers: travel would send running statistics of the data, which privacy does not protect; use "
            "batch"
        )
    return trainer


def pick_device(name: str) -> str:
    """The device of that name; "auto" takes a GPU where there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UnavailableError(f"device: {name} is not available here; allowed: auto, cpu")
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise UnavailableError(f"device: {name!r} is unknown; allowed: auto, cpu, cuda")
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
