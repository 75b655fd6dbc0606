"""What a run in virtual time is set up with, and how long things take in it.

`poisson` is the paper's own model (Section 4.3): one iteration of a walk, computation and communication together, is
exponential with mean d, independent of everything else; so walks never queue for a node, messages take no time of
their own, and T iterations of R walks take T·d/R on average (of V nodes in gossip: T·d/V).

`network` builds the time from its parts: computation by the node's speed, a spread and stragglers, one model at a time
per node; latency and bandwidth of links, shared by the transfers that use them (`links`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from walktalk.core.errors import SpecError, suggestion
from walktalk.core.seeds import Seed
from walktalk.core.settings import misfit
from walktalk.graphs import Graph
from walktalk.protocols import Protocol
from walktalk.runtimes.semantics import Evaluate, Objective, OptimizerState, Stop
from walktalk.runtimes.simulator.fault_plan import FaultPlan

OfEach: TypeAlias = float | Sequence[float] | Mapping[str, float]
"""One number for all nodes, a list with one for each, or numbers by the nodes' names."""


@dataclass(frozen=True)
class PoissonTiming:
    """Every walk (or node) acts as a Poisson process of rate 1/d."""

    d: float = 1.0  # mean seconds of one iteration

    def __post_init__(self) -> None:
        require_positive("timing.d", self.d)


@dataclass(frozen=True)
class NetworkTiming:
    """Computation and communication, each with its own time."""

    compute: OfEach = 1.0  # seconds of one local training: one number for all nodes, or one for each
    spread: float = 0.0  # σ of the log-normal factor on every computation; its mean is 1
    straggler_share: float = 0.0  # share of the nodes that are slow
    straggler_slowdown: float = 1.0  # how many times slower they are
    latency: float = 0.01  # seconds from node to node, one way, where the graph has no sites
    bandwidth: float = 1e9  # bit/s of a link (an edge, or the path between two sites)
    node_bandwidth: float = math.inf  # bit/s that a node can send, and also receive
    up: float | Sequence[float] | None = None  # bit/s that nodes can send, one for all or one each; None: as above
    down: float | Sequence[float] | None = None  # bit/s that nodes can receive, likewise
    jitter: float = 0.0  # mean seconds, exponential, that a message takes longer than the latency
    slow_start: float | None = None  # bytes that a transfer may have under way at first; None: as much as there is room

    def __post_init__(self) -> None:
        for name in ("straggler_slowdown", "bandwidth", "node_bandwidth"):
            require_positive(f"timing.{name}", getattr(self, name))
        for name in ("compute", "up", "down"):
            given = getattr(self, name)
            each = given.values() if isinstance(given, Mapping) else given if is_list(given) else [given]
            for value in each if given is not None else []:
                require_positive(f"timing.{name}", value)
        if self.slow_start is not None:
            require_positive("timing.slow_start", self.slow_start)
        if self.spread < 0 or self.latency < 0 or self.jitter < 0:
            raise SpecError("timing: spread, latency and jitter must not be negative")
        if not 0 <= self.straggler_share <= 1:
            raise SpecError(f"timing.stragglers.share: {self.straggler_share} is not a share; allowed: 0 to 1")

    def ends(self) -> dict[str, float | Sequence[float] | None]:
        """What nodes can send and receive, as given."""
        return {"up": self.up, "down": self.down}

    @property
    def mean_compute(self) -> float:
        """Seconds of one local training, mean over the nodes."""
        each = list(self.compute.values()) if isinstance(self.compute, Mapping) else self.compute
        return float(np.mean(each))

    def computes(self, graph: Graph) -> list[float]:
        """Seconds of one local training of each node of a graph."""
        return of_each("timing.compute", self.compute, graph.nodes, graph.names)

    def rates(self, which: str, nodes: int) -> list[float]:
        """What each node can send (`which` is "up") or receive ("down"), bit/s."""
        given = getattr(self, which)
        if is_list(given):
            return list(given)
        return [self.node_bandwidth if given is None else given] * nodes

    def check(self, nodes: int) -> None:
        """Raise `SpecError` where it names more or fewer nodes than there are."""
        for name in ("up", "down"):
            if len(self.rates(name, nodes)) != nodes:
                said = f"{len(self.rates(name, nodes))} rates for {nodes} nodes"
                raise SpecError(f"timing.{name}: {said}; give one number, or one for each node")


Timing = PoissonTiming | NetworkTiming


def is_list(given: object) -> bool:
    """Whether there is one value for each node, in their order."""
    return isinstance(given, (Sequence, np.ndarray)) and not isinstance(given, str)


def of_each(name: str, given: OfEach, nodes: int, names: Sequence[str] | None) -> list[float]:
    """A value for each node, from one for all, a list with one for each, or a mapping by name.

    Args:
        name: Where it stands, for errors.
        given: The value or values.
        nodes: How many nodes there are.
        names: What they are called; their numbers, if left out.
    """
    called = [*(names or map(str, range(nodes)))]
    if isinstance(given, Mapping):
        by_name = {str(one): value for one, value in given.items()}
        unknown, missing = sorted(by_name.keys() - set(called)), [one for one in called if one not in by_name]
        if unknown:
            known = ", ".join(called[:20])
            raise SpecError(f"{name}: there is no node {unknown[0]!r}{suggestion(unknown[0], called)}; nodes: {known}")
        if missing:
            raise SpecError(f"{name}: node {missing[0]!r} is missing; give one number for all, or one for each node")
        return [by_name[one] for one in called]
    if not is_list(given):
        return [given] * nodes  # type: ignore[list-item]
    values = list(given)  # type: ignore[arg-type]
    if len(values) != nodes:
        raise SpecError(
            f"{name}: {len(values)} values for {nodes} nodes; give one number for all, or one for each node"
        )
    return values


def require_positive(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not value > 0:
        raise misfit(name, value, "a number above 0")


class Stopwatch:
    """Draws the training times of one run."""

    def __init__(self, timing: Timing, graph: Graph, seed: Seed) -> None:
        self.timing = timing
        self.random: random.Random = seed.child("training times").python()
        # Who is slow is a fact about the machines, so it is the study's, not the repetition's.
        self.slowness = slow_factors(timing, graph.nodes, Seed(seed.root).child("stragglers"))
        self.usual = tuple(self.slowness or [1.0] * graph.nodes)
        self.computes = timing.computes(graph) if isinstance(timing, NetworkTiming) else []

    def training_time(self, node: int) -> float:
        timing = self.timing
        if isinstance(timing, PoissonTiming):
            # Random.expovariate(1) written out: this is drawn for every iteration of every run.
            return -math.log(1.0 - self.random.random()) * timing.d * self.factor(node)
        seconds = self.computes[node] * self.factor(node)
        if timing.spread:
            seconds *= math.exp(self.random.gauss(-(timing.spread**2) / 2, timing.spread))
        return seconds

    def factor(self, node: int) -> float:
        """How many times slower than usual a node is now."""
        return self.slowness[node] if self.slowness else 1.0

    def slow_down(self, node: int, factor: float) -> None:
        """Makes a node that many times slower than usual from now on."""
        self.slowness = self.slowness or list(self.usual)
        self.slowness[node] = self.usual[node] * factor


def slow_factors(timing: Timing, nodes: int, seed: Seed) -> list[float]:
    """The slowness of every node; empty where all are alike."""
    if isinstance(timing, PoissonTiming) or timing.straggler_share == 0.0:
        return []
    slow = seed.numpy().permutation(nodes)[: round(timing.straggler_share * nodes)]
    factors = np.ones(nodes)
    factors[slow] = timing.straggler_slowdown
    return [float(f) for f in factors]


# -- What one simulated run is made of --------------------------------------------------------------------------------


def constant_rate(progress: float) -> float:
    return 1.0


@dataclass(frozen=True)
class RunSetup:
    """Everything that decides when things happen in one run, and nothing that depends on a model's numbers."""

    protocol: Protocol
    graph: Graph
    seed: Seed  # of this run: one algorithm, one repetition
    stop: Stop
    timing: Timing = field(default_factory=PoissonTiming)
    evaluate: Evaluate = field(default_factory=Evaluate)
    lr: float = 0.05
    schedule: Callable[[float], float] = constant_rate  # progress -> factor on the learning rate
    model_bytes: int = 0  # of one model on the wire
    state_bytes: int = 0  # of one optimizer state on the wire
    optimizer_state: OptimizerState = "visit"  # where the optimizer's state lives between two visits
    private: bool = False  # whether parts of models are private, in the states of nodes
    local_steps: int = 1  # of a training, where the protocol does not say
    steps_of: tuple[int, ...] = ()  # by node: local steps, where nodes have numbers of their own
    work: tuple[float, ...] = ()  # by node: what a training there takes, as a share of the mean; (): all the same
    samples: tuple[int, ...] = ()  # by node: how much it counts, such as how much data it has; (): one each
    objective: Objective = field(default_factory=Objective)  # what is minimized
    statistics: bool = False  # whether models carry any beside their parameters
    statistics_bytes: int = 0  # of them on the wire, among those of a model
    averages: bool = False  # whether a mean of models is more than a sum of their numbers
    faults: FaultPlan = field(default_factory=FaultPlan)  # where anything goes wrong, protocols are resilient
    keep_trace: bool = True
    keep_schedule: bool = True  # False: for planning only, when and how much but no arithmetic
