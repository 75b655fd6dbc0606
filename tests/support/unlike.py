"""Nodes that want different models: f_v(x) = ½ (x − b_v)ᵀ diag(a_v) (x − b_v), exact gradients, a known optimum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.learning import TrainingRows
from walktalk.protocols import NetworkView, Protocol
from walktalk.protocols.machine import row_of
from walktalk.records import TraceRow
from walktalk.runtimes.semantics import Evaluate, Objective, Stop
from walktalk.runtimes.simulator import FaultPlan, NetworkTiming, RunSetup, Timing
from walktalk.runtimes.stacked import Engine
from walktalk.testing import QuadraticTrainer

LR = 0.1


class Unlike(QuadraticTrainer):
    """Nodes differ in their curvatures, too, so that the mean of their centres is not the optimum."""

    def __init__(self, nodes: int, steps: int = 1, momentum: float = 0.0) -> None:
        super().__init__(nodes, dimension=3, steps=steps, momentum=momentum)
        self.curvatures = np.random.default_rng(5).uniform(0.3, 1.5, (nodes, 3))

    def train(self, given: TrainingRows) -> tuple[Tensor, Tensor | None]:
        rows, parts, _, lr, state, extras, _ = given
        a, b = (torch.tensor(which, dtype=torch.float32)[parts] for which in (self.curvatures, self.centres))
        if extras is not None and extras.gradient:
            return a * (rows - b), state
        x, velocity = rows.clone(), torch.zeros_like(rows) if state is None else state.clone()
        for _ in range(self.steps if extras is None else extras.steps):
            gradient = a * (x - b)
            if extras is not None and extras.correction is not None:
                gradient = gradient + extras.correction
            if extras is not None and extras.anchor is not None and extras.pulls is not None:
                gradient = gradient + extras.pulls[:, None] * (x - extras.anchor)
            velocity = self.momentum * velocity + gradient
            x = x - lr[:, None] * velocity
        return x, velocity if state is not None else None

    def gradients(self, x: np.ndarray) -> np.ndarray:
        """Of all nodes, each at its own row."""
        return self.curvatures * (x - self.centres[:-1])

    def optimum(self, weights: Sequence[float] | None = None) -> np.ndarray:
        """Of all nodes counted alike, or by weights."""
        a = self.curvatures * (1.0 if weights is None else np.asarray(weights)[:, None])
        return np.asarray((a * self.centres[:-1]).sum(0) / a.sum(0))


@dataclass
class Ended:
    """Where a run is after some rounds."""

    members: np.ndarray  # every node's model
    output: np.ndarray
    slots: list[dict[str, np.ndarray]]  # all that nodes have
    trainer: Unlike
    bits: int
    trace: list[TraceRow]


IN_STEP = NetworkTiming(compute=1.0, latency=0.001)  # all take the same time, so all end a round together


def run(
    protocol: Protocol,
    graph: Graph,
    rounds: int,
    steps: int = 1,
    samples: list[int] | None = None,
    timing: Timing = IN_STEP,
    lr: float = LR,
    schedule: Callable[[float], float] = lambda progress: 1.0,
    seed: int = 1,
    faults: FaultPlan = FaultPlan(),
    momentum: float = 0.0,
    objective: Objective = Objective(),
) -> Ended:
    """So many rounds, in which everybody trains once; the last averaging is over, and the next training under way."""
    protocol.check_graph(graph)
    trainer = Unlike(graph.nodes, steps, momentum)
    trainer.samples = samples or trainer.samples
    half = (
        (rounds + 0.5) * (protocol.settings.get("steps") or steps) / steps
    )  # a training takes as long as it has steps
    setup = RunSetup(
        protocol, graph, Seed(seed), Stop(time=2 * half), timing, Evaluate(every=10**6), lr=lr, model_bytes=12
    )
    if momentum:
        setup = replace(setup, optimizer_state="node", state_bytes=4 * trainer.state_width)
    engine = Engine(
        trainer, [replace(setup, schedule=schedule, faults=faults, objective=objective)], [trainer.initial()]
    )
    trace = engine.advance(0.5).traces.get(0, [])
    what = engine.simulations[0].interpreter

    def value(terms: tuple[tuple[int, float], ...]) -> np.ndarray:
        row = engine.executor.blend([(engine.planner.rows[0, one], weight) for one, weight in terms])
        return np.asarray(row.double().numpy())

    members = [value(terms) for terms in what.output.in_order()]
    slots = [{slot: value(terms) for slot, terms in what.slots[v].items()} for v in range(graph.nodes)]
    output = value(tuple(engine.simulations[0].output()))
    return Ended(np.stack(members), output, slots, trainer, 8 * what.traffic.bytes, trace)


def matrix(graph: Graph, round_: int = 0) -> np.ndarray:
    """W of a round, from every node's own row."""
    w = np.zeros((graph.nodes, graph.nodes))
    for v in range(graph.nodes):
        degrees = tuple(len(graph.neighbours(u)) for u in graph.neighbours(v))
        heard = graph.reverse.neighbours(v) if graph.directed else None
        around = NetworkView(v, graph.nodes, graph.neighbours(v), degrees, heard=heard, rounds=graph.rounds)
        for source, weight in row_of(around, round_).items():
            w[v, source] = weight
        w[v, v] = 1.0 - w[v].sum()
    return w


def train_then_mix(graph: Graph, rounds: int) -> np.ndarray:
    """D-PSGD in NumPy: W(x − ηg)."""
    trainer = Unlike(graph.nodes)
    x = np.repeat(trainer.initial().double().numpy()[None], graph.nodes, 0)
    for t in range(rounds):
        x = matrix(graph, t) @ (x - LR * trainer.gradients(x))
    return x
