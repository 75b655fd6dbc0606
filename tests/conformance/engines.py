"""One way to run a protocol in virtual time and on real nodes, so that the very same checks apply to both."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from tests.peers.cluster import SECONDS, Cluster, Killed, SlowTrainer, quietly, running
from walktalk.graphs import Graph
from walktalk.protocols import Machine, Protocol
from walktalk.records import TraceRow
from walktalk.runtimes.meaning import Evaluate, Stop
from walktalk.runtimes.peers.node import Node
from walktalk.runtimes.peers.replay import ReplaySetup, replay
from walktalk.runtimes.simulator import Fault, FaultPlan, NetworkTiming, RunSetup
from walktalk.runtimes.stacked import Engine, Measurement
from walktalk.seeds import Seed

TRAINING = 0.01  # seconds, as `SlowTrainer` takes on real nodes
EVERY = 20


@dataclass(frozen=True)
class Blow:
    """A node is killed and comes back."""

    at: float  # seconds
    node: int
    seconds: float
    with_walks: int | None = None  # as soon as so many are there; in virtual time `at` must be such a moment


@dataclass(frozen=True)
class Outcome:
    """What a run leaves, whatever ran it."""

    protocol: Protocol
    graph: Graph
    trace: list[TraceRow]
    measurements: list[Measurement]
    output: np.ndarray  # the model that the algorithm puts out
    replayed: np.ndarray  # the same, computed again from the trace
    machines: list[Machine]
    model_bytes: int
    seconds: float


def simulated(
    protocol: Protocol, graph: Graph, stop: Stop, folder: Path, blow: Blow | None = None, everything: bool = False
) -> Outcome:
    """In virtual time, with the times of the real ones; hardened, as real nodes always are."""
    trainer = SlowTrainer(graph.nodes)
    trainer.seconds = 0.0
    timing = NetworkTiming(compute=TRAINING, spread=0.2, latency=0.001)
    plan = FaultPlan(_faults(blow, graph, everything), Seed(3))
    run = RunSetup(
        protocol.hardened(),
        graph,
        Seed(7),
        stop,
        timing,
        Evaluate(every=EVERY),
        model_bytes=4 * trainer.width,
        faults=plan,
    )
    engine = Engine(trainer, [run], [trainer.initial()])
    advance = engine.advance(1.0)
    simulation, trace = engine.simulations[0], advance.traces.get(0, [])
    again = _replayed(trace, graph, trainer)
    return Outcome(
        protocol,
        graph,
        trace,
        advance.measurements,
        engine.output(0).double().numpy(),
        again[1],
        simulation.machines,
        4 * trainer.width,
        simulation.agenda.now,
    )


def real(
    protocol: Protocol, graph: Graph, stop: Stop, folder: Path, blow: Blow | None = None, everything: bool = False
) -> Outcome:
    """On nodes over loopback, each a thread of this process with a Zenoh session of its own."""
    with running(protocol, graph, folder, stop) as cluster:
        if blow is not None:
            _strike(cluster, blow, _struck(blow, graph, everything))
        cluster.wait()
    trace = cluster.trace()
    measurements, again = _replayed(trace, graph, cluster.trainer)
    return Outcome(
        protocol,
        graph,
        trace,
        measurements,
        _output(cluster, trace),
        again,
        [node.machine for node in cluster.nodes],
        4 * cluster.trainer.width,
        trace[-1][0],
    )


ENGINES: dict[str, Callable[..., Outcome]] = {"simulator": simulated, "peers": real}


def _struck(blow: Blow | None, graph: Graph, everything: bool) -> list[int]:
    """Whom it hits: one node, or all at once, so that no walk is left."""
    if blow is None:
        return []
    return list(range(graph.nodes)) if everything else [blow.node]


def _faults(blow: Blow | None, graph: Graph, everything: bool) -> tuple[Fault, ...]:
    if blow is None:
        return ()
    struck = _struck(blow, graph, everything)
    return tuple(Fault("kill", at=blow.at, node=v, seconds=blow.seconds) for v in struck)


def _strike(cluster: Cluster, blow: Blow, struck: list[int]) -> None:
    """Let nodes die in the middle of whatever they do, and start them again from their checkpoints."""
    end = time.monotonic() + SECONDS
    while any(cluster.nodes[v].status()["seconds"] < blow.at or not cluster.nodes[v].begun for v in struck):
        assert time.monotonic() < end, "it does not begin"
        time.sleep(0.01)

    def die(node: Node) -> None:
        if blow.with_walks not in (None, len(node.trainings.walks)):
            threading.Timer(0.001, node.events.put, (partial(die, node),)).start()
            return
        raise Killed

    for node in [cluster.nodes[v] for v in struck]:
        node.events.put(partial(die, node))
    for v in struck:
        cluster.threads[v].join(SECONDS)
    time.sleep(blow.seconds)
    for v in struck:
        back = Node(replace(cluster.setups[v], rejoin=True), cluster.trainer)
        thread = threading.Thread(target=quietly, args=(back.run,), name=f"node {v}", daemon=True)
        cluster.nodes[v], cluster.threads[v] = back, thread
        thread.start()


def _output(cluster: Cluster, trace: list[TraceRow]) -> np.ndarray:
    """The aggregate of the highest term, or the mean of what nodes recorded last."""
    held = {v: node.interpreter for v, node in enumerate(cluster.nodes)}
    terms = {v: what.aggregate_term for v, what in held.items() if what.aggregate is not None}
    if terms:
        return held[max(terms, key=lambda v: (terms[v], v))].aggregate.double().numpy()
    last = {row.walk: row.node for row in trace if row.event == "record"}
    members = [held[v].members.get(key) for key, v in last.items()]
    return np.mean([model.double().numpy() for model in members if model is not None] or [[np.nan]], axis=0)


def _replayed(trace: list[TraceRow], graph: Graph, trainer: SlowTrainer) -> tuple[list[Measurement], np.ndarray]:
    quick = SlowTrainer(graph.nodes, momentum=trainer.momentum)
    quick.seconds = 0.0
    done = replay(trace, ReplaySetup(graph.nodes, trainer.initial(), Evaluate(every=EVERY)), quick)
    return done.measurements, done.output.double().numpy()
