"""The theorems against measurement: cases, the step size each theorem allows, the average it bounds, and the bound.

Everything is the `quadratic` task with its exact constants, trained as the theorems have it (one step, one sample, no
momentum), under Poisson timing. All cases with the same data share an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from walktalk import graphs
from walktalk.core.errors import DataError, SpecError
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.learning import OptimizerSpec, Task, Trainer, TrainingRows, tasks
from walktalk.protocols import (
    UPDATE,
    Arrival,
    AsyncGossip,
    Combine,
    Context,
    Effect,
    Event,
    Machine,
    MultiWalk,
    NetworkView,
    Protocol,
    Runtime,
    SetTimer,
    Started,
    TimerFired,
    Trained,
)
from walktalk.records import TraceRow
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import RunSetup
from walktalk.runtimes.stacked import Engine, RowTrainer, parameters_of
from walktalk.theory import (
    Inequality,
    Problem,
    by_age_inequality,
    network,
    stages,
    theorem1_inequality,
    theorem2_inequality,
    theorem3_inequality,
)

# -- Multi-Walk whose aggregator dies at known times: what Theorem 3 speaks of (Section 5, case (i)) ------------------
# When the aggregator of a stage dies, every neighbour forgets it and the living node with most neighbours takes over;
# it starts all copies from the first walk that arrives. Nobody has to find out: the times are given, so this is for
# checking the theorem and not for running. No walk is lost: one that is being trained by the dying node is trained to
# the end and sent on. Everything else is Algorithm 1's own machines, a new one at each stage.


@dataclass(frozen=True)
class Stage:
    """The network between two deaths, in the numbers of the whole graph."""

    aggregator: int
    living: frozenset[int]
    degrees: dict[int, int]  # of the living, among the living


@dataclass(frozen=True)
class StagedWalk(Protocol):
    """R walks; the aggregator of stage k dies `deaths[k]` seconds after the start."""

    graph: Graph
    walks: int = 1
    deaths: tuple[float, ...] = ()
    name: ClassVar[str] = "staged_walk"
    runtimes: ClassVar[tuple[Runtime, ...]] = ("sim",)

    @property
    def label(self) -> str:
        return f"multi_walk-{self.walks}-deaths{len(self.deaths)}"

    def check(self, nodes: int) -> None:
        MultiWalk(self.walks).check(nodes)
        if len(self.deaths) >= nodes or self.walks > nodes - len(self.deaths):
            raise SpecError(f"deaths: {len(self.deaths)} of {nodes} nodes leave too few for {self.walks} walks")

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return MultiWalk(self.walks).messages

    def active_models(self, nodes: int) -> int:
        return self.walks

    def machine(self, network_view: NetworkView) -> Machine:
        return StagedNode(network_view, self)

    def stages(self) -> list[Stage]:
        """As `theory.stages` has them, from node 0 on."""
        living, aggregator = set(range(self.graph.nodes)), 0
        found: list[Stage] = []
        for _ in range(len(self.deaths) + 1):
            degrees = {v: sum(peer in living for peer in self.graph.neighbours(v)) for v in living}
            if found:
                aggregator = min(living, key=lambda v: (-degrees[v], v))
            found.append(Stage(aggregator, frozenset(living), degrees))
            living.discard(aggregator)
        return found


class StagedNode(Machine):
    """A node: Algorithm 1's machine for the stage of now."""

    __slots__ = ("around", "fresh", "inner", "protocol", "stages")

    def __init__(self, network_view: NetworkView, protocol: StagedWalk) -> None:
        self.around = network_view
        self.protocol = protocol
        self.stages = protocol.stages()
        self.fresh = False  # whether this is a new aggregator that no walk has reached yet
        self.inner = self.machine_of(self.stages[0])

    def machine_of(self, stage: Stage) -> Machine:
        neighbours = tuple(peer for peer in self.around.neighbours if peer in stage.living)
        degrees = tuple(stage.degrees[peer] for peer in neighbours)
        around = NetworkView(self.around.node, self.around.nodes, neighbours, degrees)
        return MultiWalk(self.protocol.walks, aggregator=stage.aggregator).machine(around)

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, TimerFired):
            return self.next_stage(self.stages[int(event.name)])
        effects: list[Effect] = []
        if isinstance(event, Started):
            effects += [SetTimer(str(k + 1), after) for k, after in enumerate(self.protocol.deaths)]
        if self.fresh and isinstance(event, Trained):
            # All copies from the first walk that arrives; line 8 then gives this walk back as it is.
            self.fresh = False
            copies = range(1, self.protocol.walks + 1)
            effects += [Combine(f"copy/{r}", {event.slot: 1.0, UPDATE: 1.0}, {UPDATE: 1.0}) for r in copies]
        return effects + self.inner.handle(event, context)

    def next_stage(self, stage: Stage) -> list[Effect]:
        self.inner = self.machine_of(stage)
        self.fresh = self.around.node == stage.aggregator
        return []


# -- The theorems against measurement: cases, the step size each theorem allows, the average it bounds, and the bound -

# What the theorems bound, measured: (1/T) Σ E‖∇f(x)‖² at the models that are trained, iteration by iteration.
#
# A trainer that looks at every model before it trains it stands between the executor and the real one; the trace says
# which training was which iteration of which run. So any number of runs are measured in one engine, at full speed.

Floats = npt.NDArray[np.float64]
SquaredNorm: TypeAlias = Callable[[Tensor], Tensor]  # rows [W, P] -> ‖∇f‖² [W]
STRETCHES = 4  # of a measurement: few, so that waves are wide; more than one, so that traces do not pile up


class Watcher:
    """A trainer that notes ‖∇f‖² of every model it is given, by the key of the training."""

    def __init__(self, trainer: RowTrainer, norm: SquaredNorm) -> None:
        self.trainer = trainer
        self.norm = norm
        self.width, self.state_width, self.device = trainer.width, trainer.state_width, trainer.device
        self.parameters, self.local_steps = parameters_of(trainer), trainer.local_steps
        self.keys: list[Tensor] = []
        self.norms: list[Tensor] = []

    def train(self, given: TrainingRows) -> tuple[Tensor, Tensor | None]:
        self.keys.append(given.keys)
        self.norms.append(self.norm(given.rows))
        return self.trainer.train(given)

    def evaluate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.trainer.evaluate(rows)

    def take(self) -> dict[int, float]:
        """Key -> ‖∇f‖² of everything since the last time."""
        if not self.keys:
            return {}
        keys, norms = torch.cat(self.keys).tolist(), torch.cat(self.norms).double().cpu().tolist()
        self.keys, self.norms = [], []
        return dict(zip(keys, norms, strict=True))


def quadratic_norm(task: Task) -> SquaredNorm:
    """‖∇f(x)‖² of a `quadratic` task, exactly."""
    facts = task.details.get("quadratic")
    if facts is None:
        raise DataError(f"task {task.name}: its gradient is not known in closed form; use the task quadratic")
    scale = torch.tensor(facts.eigenvalues, dtype=torch.float64)
    optimum = torch.tensor(facts.centres.mean(0), dtype=torch.float64)
    return lambda rows: ((scale * (rows.double() - optimum)) ** 2).sum(1)


def quadratic_problem(task: Task) -> Problem:
    """The exact constants of a `quadratic` task that is trained with batches of one."""
    facts = task.facts
    constants = {name: facts[name] for name in ("F", "L", "sigma2", "zeta2")}
    return Problem(**constants, delta=0.0)  # all nodes have the same curvature


def plain_sgd(task: Task) -> Trainer:
    """As the theorems have it: one step, one sample, no momentum."""
    return Trainer(task, batch_size=1, local_steps=1, optimizer=OptimizerSpec(name="sgd", lr=1.0))


def squared_gradients(task: Task, setups: Sequence[RunSetup]) -> list[Floats]:
    """Measure for every run ‖∇f‖² at the model of each iteration, in the order in which iterations are completed."""
    trainer = plain_sgd(task)
    watcher = Watcher(trainer, quadratic_norm(task))
    # Trainings are told apart by their keys, so no two runs may draw the same ones.
    own = [replace(setup, seed=setup.seed.child("measured", run)) for run, setup in enumerate(setups)]
    engine = Engine(watcher, own, [trainer.initial_row(0)] * len(own))
    keys: list[dict[int, int]] = [{} for _ in setups]  # training -> its key
    order: list[list[int]] = [[] for _ in setups]  # keys, by iteration
    found: dict[int, float] = {}
    for stretch in range(1, STRETCHES + 1):
        advance = engine.advance(stretch / STRETCHES)
        found.update(watcher.take())
        for run, rows in advance.traces.items():
            note_order(rows, keys[run], order[run])
    return [np.array([found[key] for key in run]) for run in order]


def note_order(trace: list[TraceRow], keys: dict[int, int], order: list[int]) -> None:
    """Remember which training of the schedule was which iteration."""
    for row in trace:
        if row.event == "train":
            keys[row.number] = row.key
        elif row.event == "trained":
            order.append(keys.pop(row.number))


NEVER = Evaluate(every=None, seconds=1e18)  # only the gradients are of interest


@dataclass(frozen=True)
class Case:
    """One combination of graph, walks, noise and horizon for which a bound is held against measurement."""

    theorem: int  # 1, 2 or 3
    topology: str
    nodes: int
    iterations: int
    walks: int = 1
    failures: int = 0  # Theorem 3's E
    noise: float = 1.0  # σ²
    heterogeneity: float = 1.0  # ζ²
    parameters: tuple[tuple[str, Any], ...] = ()  # of the topology
    by_age: bool = False  # our bound by the age of walks, in place of Theorem 1
    share: float | None = None  # of the largest step size that the lemmas allow; None: tuned by Lemma 5

    def graph(self) -> graphs.Graph:
        return graphs.build(self.topology, self.nodes, seed=1, **dict(self.parameters))

    def inequality(self, graph: graphs.Graph, problem: Problem) -> Inequality:
        if self.theorem == 2:
            return theorem2_inequality(network(graph), problem, self.iterations)
        if self.theorem == 1:
            proof = by_age_inequality if self.by_age else theorem1_inequality
            return proof(network(graph), problem, self.walks, self.iterations)
        return theorem3_inequality(stages(graph, self.failures), problem, self.walks, self.iterations)

    def protocol(self, graph: graphs.Graph) -> Protocol:
        if self.theorem == 2:
            return AsyncGossip("matrix")
        if self.theorem == 1:
            return MultiWalk(self.walks)
        seconds = self.iterations / self.walks  # d = 1: what the run takes, on average
        deaths = tuple(seconds * k / (self.failures + 1) for k in range(1, self.failures + 1))
        return StagedWalk(graph, self.walks, deaths)


@dataclass(frozen=True)
class Outcome:
    """What was measured of a case, beside its bound."""

    case: Case
    step_size: float
    bound: float
    measured: float  # (1/T) Σ ‖∇f‖², mean over repetitions
    error: float  # its standard error
    p: float
    H: float
    curve: Floats  # ‖∇f‖² by iteration, mean over repetitions

    @property
    def holds(self) -> bool:
        """Whether the average is below the bound, with three standard errors to spare."""
        return self.measured + 3 * self.error <= self.bound


def check_bounds(cases: Iterable[Case], repetitions: int = 3, distance: float = 5.0) -> list[Outcome]:
    """Measure every case; those that share their data are done together."""
    groups: dict[tuple[int, float, float], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.nodes, case.noise, case.heterogeneity), []).append(case)
    return [outcome for group in groups.values() for outcome in _check_group(group, repetitions, distance)]


def _check_group(cases: Sequence[Case], repetitions: int, distance: float) -> list[Outcome]:
    first = cases[0]
    task = tasks.quadratic(
        nodes=first.nodes, seed=0, noise=first.noise, heterogeneity=first.heterogeneity, distance=distance
    )
    planned = [_plan(case, task) for case in cases]
    setups = [
        RunSetup(
            case.protocol(graph),
            graph,
            Seed(repetition).child("bound", index),
            Stop(iterations=case.iterations),
            evaluate=NEVER,
            lr=step_size,
        )
        for index, (case, graph, step_size, _) in enumerate(planned)
        for repetition in range(repetitions)
    ]
    found = squared_gradients(task, setups)
    outcomes = []
    for index, (case, graph, step_size, bound) in enumerate(planned):
        runs = np.stack(found[index * repetitions : (index + 1) * repetitions])
        averages = runs.mean(1)
        error = float(averages.std(ddof=1)) / sqrt(repetitions) if repetitions > 1 else 0.0
        net = network(graph)
        outcomes.append(Outcome(case, step_size, bound, float(averages.mean()), error, net.p, net.H, runs.mean(0)))
    return outcomes


def _plan(case: Case, task: Task) -> tuple[Case, graphs.Graph, float, float]:
    """The graph, the step size and the bound of a case."""
    graph = case.graph()
    proof = case.inequality(graph, quadratic_problem(task))
    if case.share is None:
        return case, graph, proof.tuned_step_size(case.iterations), proof.tuned(case.iterations).total
    step_size = case.share / proof.d
    bound = proof.at(step_size, case.iterations)
    return case, graph, step_size, bound.total  # type: ignore[union-attr]  # a share of the largest is allowed


GRAPHS: tuple[tuple[str, int, tuple[tuple[str, Any], ...]], ...] = (
    ("cycle", 16, ()),
    ("complete", 16, ()),
    ("torus", 16, ()),
    ("erdos_renyi", 16, (("p", 0.5),)),
    ("star", 9, ()),
    ("barbell", 10, ()),
)
DATA = ((1.0, 0.0), (1.0, 1.0), (0.1, 4.0))  # (σ², ζ²): iid, both, mostly heterogeneous


def standard_cases(iterations: Sequence[int] = (500, 2000)) -> list[Case]:
    """Every theorem and the bound by age on every graph: few and many walks, data alike and unlike, short and long."""
    cases = []
    for topology, nodes, parameters in GRAPHS:
        for noise, heterogeneity in DATA:
            for t in iterations:
                common: dict[str, Any] = {
                    "topology": topology,
                    "nodes": nodes,
                    "parameters": parameters,
                    "noise": noise,
                    "heterogeneity": heterogeneity,
                    "iterations": t,
                }
                for by_age in (False, True):
                    cases += [Case(1, walks=walks, by_age=by_age, **common) for walks in (1, 4, nodes - 1)]
                    cases.append(Case(1, walks=2, by_age=by_age, share=0.5, **common))
                cases.append(Case(2, **common))
                if topology in ("complete", "torus", "erdos_renyi"):  # stay connected without their aggregators
                    cases += [Case(3, walks=4, failures=failures, **common) for failures in (1, 2)]
    return cases
