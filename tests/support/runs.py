"""Runs on the small quadratic, for tests of the runtimes and protocols."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import AsyncGossip, Centralized, MultiWalk, Protocol, SyncGossip
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import NetworkTiming, PoissonTiming, RunSetup
from walktalk.runtimes.stacked import Engine, WavePolicy
from walktalk.testing.quadratic import QuadraticTrainer
from walktalk.testing.replay import Replay


def setup(protocol: Protocol, graph: Graph, **changes: Any) -> RunSetup:
    settings: dict[str, Any] = {
        "stop": Stop(iterations=60),
        "evaluate": Evaluate(every=1),
        "lr": 0.1,
        "model_bytes": 20,
        "seed": Seed(7),
    }
    return RunSetup(protocol, graph, **{**settings, **changes})


class Played:
    """A run done by the engine and, from its trace, by the replay."""

    def __init__(self, run: RunSetup, *, stretches: int = 3, policy: WavePolicy | None = None, steps: int = 3) -> None:
        self.trainer = QuadraticTrainer(run.graph.nodes, steps=steps)
        self.engine = Engine(self.trainer, [run], [self.trainer.initial()], policy)
        self.trace: list[tuple] = []
        self.measurements = []
        for k in range(1, stretches + 1):
            advance = self.engine.advance(k / stretches)
            self.trace += advance.traces.get(0, [])
            self.measurements += advance.measurements
        self.output = self.engine.output(0).double().numpy()
        self.run = run

    def replay(self) -> Replay:
        t = self.trainer
        centres = t.centres[:-1]
        if self.run.protocol.pools_data:
            centres = np.repeat(t.centres[-1:], len(centres), 0)
        initial = t.initial().double().numpy()
        return Replay(initial, t.curvature, centres, t.steps, dense_metropolis(self.run.graph))


def dense_metropolis(graph: Graph) -> np.ndarray:
    """P of Section 4.1, written from its definition."""
    p = np.zeros((graph.nodes, graph.nodes))
    for i in range(graph.nodes):
        for j in graph.neighbours(i):
            p[i, j] = min(1 / (len(graph.neighbours(i)) + 1), 1 / (len(graph.neighbours(j)) + 1))
        p[i, i] = 1 - p[i].sum()
    return p


ALL_PROTOCOLS = (
    MultiWalk(1),
    MultiWalk(3),
    AsyncGossip("pairwise"),
    AsyncGossip("neighbourhood"),
    AsyncGossip("matrix"),
    SyncGossip(),
    Centralized(),
)

TIMINGS = (
    PoissonTiming(d=2.0),
    NetworkTiming(
        compute=1.0,
        spread=0.5,
        straggler_share=0.3,
        straggler_slowdown=4.0,
        latency=0.3,
        bandwidth=100.0,
        node_bandwidth=150.0,
    ),
)


def graphs_of(least: int, most: int = 9) -> st.SearchStrategy[Graph]:
    """Small connected graphs."""
    sizes = st.integers(max(least, 3), most)
    return st.one_of(
        st.integers(least, most).map(graphs.cycle),
        st.integers(least, most).map(graphs.complete),
        st.integers(max(least, 2), most).map(graphs.star),
        st.builds(lambda n, s: graphs.erdos_renyi(n, p=0.5, seed=s), sizes, st.integers(0, 99)),
    )


some_graphs = graphs_of(1)
some_timings = st.one_of(
    st.floats(0.1, 5).map(lambda d: PoissonTiming(d=d)),
    st.builds(
        NetworkTiming,
        compute=st.floats(0.1, 3),
        spread=st.floats(0, 1),
        latency=st.floats(0, 2),
        straggler_share=st.sampled_from([0.0, 0.3]),
        straggler_slowdown=st.sampled_from([1.0, 10.0]),
        bandwidth=st.floats(10, 1e5),
        node_bandwidth=st.one_of(st.just(float("inf")), st.floats(10, 1e5)),
    ),
)


@st.composite
def some_protocols(draw: st.DrawFn, nodes: int) -> Protocol:
    kind = draw(st.sampled_from(["walk", "pairwise", "neighbourhood", "matrix", "sync", "central"]))
    if kind == "walk":
        return MultiWalk(draw(st.integers(1, nodes)), aggregator=draw(st.integers(0, nodes - 1)))
    if kind == "sync":
        return SyncGossip()
    return Centralized() if kind == "central" else AsyncGossip(kind)
