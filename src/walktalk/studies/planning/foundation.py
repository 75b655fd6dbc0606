"""Everything that a study needs before its first event, each thing built once."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from walktalk.core.errors import DataError, GraphError, ModelError, SettingError, UnavailableError
from walktalk.core.plugins import Registry
from walktalk.core.seeds import Seed
from walktalk.graphs import TOPOLOGIES, Graph, GraphLike, as_graph
from walktalk.learning import LoopTrainer, Task, Trainer, lacks, tasks
from walktalk.protocols import PROTOCOLS, Protocol
from walktalk.runtimes.simulator import NO_VALUE, CombineOp, EncodeOp, Op, RunSetup, ScreenOp, Simulation, TrainOp
from walktalk.studies.planning.build import (
    AlgorithmPlan,
    Conditions,
    PlannedRun,
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
    matched,
)
from walktalk.studies.spec import StudySpec, algorithms_section, make_spec, network_section


@dataclass(frozen=True)
class Foundation:
    """The graph and algorithms of a study, before any data is read: cheap, so that mistakes in it show first."""

    spec: StudySpec
    graph: Graph
    algorithms: list[AlgorithmPlan]
    user_task: Task | None = None  # the task itself, where it was handed over in Python

    @property
    def root(self) -> Seed:
        """The study's seed, of which all others are children."""
        return Seed(self.spec.seed)

    def task(self) -> Task:
        """The task, its data read and split over the nodes."""
        if self.user_task is not None:
            return self.user_task
        return matched(build_task(self.spec, self.graph.nodes), self.graph)[0]

    def task_of(self, node: tasks.Node) -> Task:
        """The task of one node alone, for a machine that has no other data than its own."""
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
            local_steps=trainer.local_steps,
            private=trainer.private is not None,
            objective=spec.minimizes,
        )

    def initial_seed(self, repetition: int) -> int:
        """The seed of the first model. It is the same for every algorithm of a repetition: the comparison is paired."""
        return self.root.child("initial model", repetition).integer

    def runs(self, trainer: Trainer) -> list[PlannedRun]:
        """All runs: every repetition of every algorithm."""
        conditions = self.conditions(trainer)
        if isinstance(trainer, LoopTrainer):
            check_loops(trainer, [conditions.setup(plan, self.root) for plan in self.algorithms])
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


def build_foundation(spec: StudySpec) -> Foundation:
    """The graph and the algorithms of a study, checked against each other."""
    graph = build_graph(spec)
    check_links(spec, graph)
    check_availability(spec, graph)
    return Foundation(spec, graph, build_protocols(spec, graph.nodes))


def prepare(spec: StudySpec, device: str = "auto") -> Preparation:
    """Build what the specification names; every mistake in it shows here, before any training."""
    return prepare_on(build_foundation(spec), device)


def prepare_on(foundation: Foundation, device: str = "auto") -> Preparation:
    """Build task, trainer and runs on a foundation that is there."""
    task = foundation.task()
    trainer = build_trainer(foundation.spec, task, device)
    return Preparation(foundation.spec, task, trainer, foundation.runs(trainer))


def planned_runs(spec: StudySpec, trainer: Trainer) -> list[PlannedRun]:
    """The runs of a study, for a trainer of its task; studies of one task and split may share one."""
    return build_foundation(spec).runs(trainer)


# A study of things that are handed over in Python: a task with its data, a graph, protocols.

TaskLike: TypeAlias = Task | str | Mapping[str, Any]
"""A task, or what a specification says of one: a name, `module:function`, or the keys of the section `task`."""

NetworkLike: TypeAlias = GraphLike | str | Mapping[str, Any]
"""A graph of ours or networkx's, or what a specification says of one: a topology, or the keys of `network`."""

AlgorithmLike: TypeAlias = Protocol | str | Mapping[str, Any]
"""A protocol, or what a specification says of one: a name, `module:class`, or the keys of an entry of `algorithms`."""


def foundation_from_python(
    task: TaskLike,
    algorithms: AlgorithmLike | Sequence[AlgorithmLike],
    graph: NetworkLike,
    sections: Mapping[str, Any] | None = None,
) -> Foundation:
    """What a study stands on, with a specification that says as much of it as one can.

    Args:
        task: What is learned.
        algorithms: What is compared.
        graph: Who may talk to whom.
        sections: All other keys of the specification.
    """
    network = as_graph_or_section(graph, task)
    if isinstance(task, Task) and isinstance(network, Graph):
        task, network = matched(task, network)
    sections = dict(sections or {})
    if isinstance(task, tasks.LoopTask):  # what it does with momentum nobody knows, and it is told none
        sections.setdefault("optimizer", {"momentum": 0.0})
    spec = make_spec(
        {
            **sections,
            "network": network_section(network) if isinstance(network, Graph) else network,
            "task": task_section(task),
            "algorithms": algorithms_section(algorithms),
        }
    )
    built = network if isinstance(network, Graph) else build_graph(spec)
    check_links(spec, built)
    plans = build_protocols(spec, built.nodes)
    return Foundation(spec, built, plans, matched(task, built)[0] if isinstance(task, Task) else None)


def as_graph_or_section(graph: Any, task: Any) -> Graph | dict[str, Any]:
    """The graph itself, or the section `network`; its nodes are the task's, where only that says how many."""
    if isinstance(graph, (str, Mapping)):
        section = {"topology": graph} if isinstance(graph, str) else dict(graph)
        return {"nodes": task.nodes, **section} if isinstance(task, Task) else section
    try:
        return as_graph(graph)
    except GraphError as error:
        if isinstance(graph, type) or callable(graph):
            raise GraphError(f"{error}; call it, as in wt.graphs.cycle(20)") from None
        raise


def task_section(task: Any) -> Mapping[str, Any]:
    """The section `task`, of a task that is there or that is named."""
    if isinstance(task, Task):
        return tasks.section_of(task)
    if isinstance(task, str):
        return {"name": task}
    if isinstance(task, Mapping):
        return task
    raise DataError(
        f"task: {type(task).__name__} is not possible; allowed: a task such as wt.tasks.torch(…), or its name"
    )


# Whether other processes can find what a study names: nobody can import what was written in a notebook.


def check_travels(spec: StudySpec, where: str) -> None:
    """Raise an `UnavailableError` where a process of its own could not find something that this one knows.

    Args:
        spec: The study.
        where: Who has to find it, as in "worker processes".
    """
    named: list[tuple[str, Registry[Any], str]] = [
        ("network.topology", TOPOLOGIES, spec.network.topology),
        ("task.name", tasks.TASKS, spec.task.name),
    ]
    named += [(f"algorithms.{k}.name", PROTOCOLS, one.name) for k, one in enumerate(spec.algorithms)]
    for key, registry, name in named:
        try:
            thing = registry.find(name)
        except SettingError:  # said elsewhere, with what is allowed
            continue
        if _only_here(thing):
            own = getattr(thing, "__qualname__", str(thing))
            raise UnavailableError(
                f"{key}: {name} is defined in this notebook or prompt, so {where} cannot find it; put it into a file "
                f"and name it as module:{own.rpartition('.')[2]}"
            )


def travels(spec: StudySpec) -> bool:
    """Whether other processes can find all that it names."""
    try:
        check_travels(spec, "others")
    except UnavailableError:
        return False
    return True


def _only_here(thing: Any) -> bool:
    """Whether it lies in what was typed in; a script's file, which `__main__` is otherwise, is read again there."""
    return getattr(thing, "__module__", "") == "__main__" and not hasattr(sys.modules["__main__"], "__file__")


# -- Which algorithms somebody else's loop can be trained by: found out before anything is trained ---------------------
# A loop is a function from state to state. Whether an algorithm asks for more is not a matter of its name: its first
# events are run in virtual time, without any arithmetic, and what they would have trained and added up is looked at.

LOOKED_AT = 4  # trainings of every node that are looked at; algorithms that begin plainly show by then what they are


def check_that_loops_can(trainer: LoopTrainer, setup: RunSetup) -> None:
    """Refuse, in one line, an algorithm that asks for more than the loop gives or its states bear."""
    label = setup.protocol.label
    few = replace(setup.stop, iterations=min(setup.stop.iterations or 10**9, LOOKED_AT * setup.graph.nodes + 20))
    averages = trainer.averaging is not None
    if averages and not setup.protocol.means_of_models:
        raise ModelError(trainer.averaging.refusal(label))
    simulation = Simulation(replace(setup, stop=few, averages=averages, keep_trace=False))
    for op in simulation.advance().ops:
        why = why_not(trainer, op, setup.graph.nodes)
        if why:
            raise ModelError(f"{label}: {why}")


def why_not(trainer: LoopTrainer, op: Op, nodes: int) -> str:
    """Why this cannot be done with the states of a loop; "" where it can."""
    if isinstance(op, TrainOp):
        return lacking(trainer, op, nodes)
    if not trainer.loop.is_carried:
        return ""
    if isinstance(op, EncodeOp | ScreenOp):
        what = "compressed" if isinstance(op, EncodeOp) else "screened"
        return f"models are {what} number by number, and this state is bytes; leave that out"
    if isinstance(op, CombineOp) and is_mixed(op):
        if not op.averaged:
            return str(trainer.averaging.refusal("it")).removeprefix("merge: ")
        if trainer.averaging.merge is None:
            return "it averages models, and nothing says how states of bytes are merged; give merge=, or take one walk"
    return ""


def is_mixed(op: CombineOp) -> bool:
    """Whether a value is made of more than a copy of another."""
    return len(op.terms) > 1 or abs(op.terms[0][1] - 1.0) > 1e-6


def lacking(trainer: LoopTrainer, op: TrainOp, nodes: int) -> str:
    """What a training asks for that the step does not take."""
    if op.part >= nodes:
        return "it trains on everybody's data at once, and a loop is given one node's; take another algorithm"
    asked = {"gradient": op.gradient, "correction": op.correction != NO_VALUE, "anchor": op.anchor != NO_VALUE}
    missing = next((name for name, is_asked in asked.items() if is_asked and name not in trainer.loop.wants), None)
    return "" if missing is None else lacks(trainer.task.name, missing)


def check_loops(trainer: LoopTrainer, setups: Iterable[RunSetup]) -> None:
    """Check every algorithm once."""
    seen = set()
    for setup in setups:
        if setup.protocol.label not in seen:
            seen.add(setup.protocol.label)
            check_that_loops_can(trainer, setup)
