"""Everything that a study needs before its first event, each thing built once."""

from __future__ import annotations

from dataclasses import dataclass

from walktalk.graphs import Graph
from walktalk.learning import Task, Trainer, tasks
from walktalk.seeds import Seed
from walktalk.studies.building.build import (
    build_evaluate,
    build_faults,
    build_graph,
    build_protocols,
    build_rate,
    build_stop,
    build_task,
    build_task_of,
    build_timing,
    build_trainer,
    check_availability,
    check_links,
)
from walktalk.studies.building.match import matched
from walktalk.studies.building.runs import AlgorithmPlan, Conditions, PlannedRun
from walktalk.studies.spec import StudySpec


@dataclass(frozen=True)
class Foundation:
    """What a study stands on before any data is read: cheap, so that mistakes in it show first."""

    spec: StudySpec
    graph: Graph
    algorithms: list[AlgorithmPlan]
    given: Task | None = None  # the task itself, where it was handed over in Python

    @property
    def root(self) -> Seed:
        """The study's seed."""
        return Seed(self.spec.seed)

    def task(self) -> Task:
        """The task, its data read and split over the nodes."""
        if self.given is not None:
            return self.given
        return matched(build_task(self.spec, self.graph.nodes), self.graph)[0]

    def task_of(self, node: tasks.Node) -> Task:
        """One node's part of it, for a machine that has no other data than its own."""
        return build_task_of(self.spec, self.graph.nodes, node)

    def conditions(self, trainer: Trainer) -> Conditions:
        """What all runs have in common, with a trainer of the study's task."""
        spec = self.spec
        return Conditions(
            graph=matched(trainer.task, self.graph)[1],
            model_bytes=trainer.payload_bytes,
            state_bytes=trainer.state_bytes,
            stop=build_stop(spec),
            timing=build_timing(spec),
            evaluate=build_evaluate(spec),
            rate=build_rate(spec),
            local_steps=spec.training.local_steps,
        )

    def initial_seed(self, repetition: int) -> int:
        """Of the first model. It is the same for every algorithm of a repetition: the comparison is paired."""
        return self.root.child("initial model", repetition).integer

    def runs(self, trainer: Trainer) -> list[PlannedRun]:
        """All runs: every repetition of every algorithm."""
        conditions = self.conditions(trainer)
        return [
            PlannedRun(
                plan.label,
                repetition,
                conditions.setup(plan, self.root, repetition, build_faults(self.spec, repetition, conditions.graph)),
                trainer.initial_row(self.initial_seed(repetition)),
            )
            for plan in self.algorithms
            for repetition in range(self.spec.repetitions)
        ]


@dataclass(frozen=True)
class Preparation:
    """Everything that a study needs before its first event."""

    spec: StudySpec
    task: Task
    trainer: Trainer
    runs: list[PlannedRun]


def lay_foundation(spec: StudySpec) -> Foundation:
    """The graph and the algorithms of a study, checked against each other."""
    graph = build_graph(spec)
    check_links(spec, graph)
    check_availability(spec, graph)
    return Foundation(spec, graph, build_protocols(spec, graph.nodes))


def prepare(spec: StudySpec, device: str = "auto") -> Preparation:
    """Build what the specification names; every mistake in it shows here, before any training."""
    return prepare_on(lay_foundation(spec), device)


def prepare_on(foundation: Foundation, device: str = "auto") -> Preparation:
    """The same on a foundation that is laid."""
    task = foundation.task()
    trainer = build_trainer(foundation.spec, task, device)
    return Preparation(foundation.spec, task, trainer, foundation.runs(trainer))


def planned_runs(spec: StudySpec, trainer: Trainer) -> list[PlannedRun]:
    """The runs of a study, for a trainer of its task; studies of one task and split may share one."""
    return lay_foundation(spec).runs(trainer)
