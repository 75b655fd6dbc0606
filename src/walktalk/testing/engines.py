"""One way to run a protocol in virtual time and on real nodes, so that the very same checks apply to both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from walktalk.graphs import Graph
from walktalk.protocols import Machine, Protocol
from walktalk.records import TraceRow
from walktalk.runtimes.meaning import Evaluate, Stop
from walktalk.runtimes.peers import ReplaySetup, replay
from walktalk.runtimes.simulator import Fault, FaultPlan, NetworkTiming, RunSetup
from walktalk.runtimes.stacked import Engine, Measurement
from walktalk.seeds import Seed
from walktalk.testing.cluster import last_output, running, strike
from walktalk.testing.quadratic import Floats, QuadraticTrainer

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
    output: Floats  # the model that the algorithm puts out
    replayed: Floats  # the same, computed again from the trace
    machines: list[Machine]
    model_bytes: int
    seconds: float


def simulated(
    protocol: Protocol, graph: Graph, stop: Stop, folder: Path, blow: Blow | None = None, everything: bool = False
) -> Outcome:
    """In virtual time, with the times of the real ones; hardened, as real nodes always are.

    Args:
        protocol: the one that is asked.
        graph: of its nodes.
        stop: when the run ends.
        folder: not used here: nothing is written.
        blow: whom it hits on the way, and when; nobody if left out.
        everything: whether a blow hits all nodes at once, and not its own one alone.
    """
    trainer = QuadraticTrainer(graph.nodes)
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
    again = _replayed(protocol, trace, graph, trainer)
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
    """On nodes over loopback, each a thread of this process with a Zenoh session of its own.

    Args:
        protocol: the one that is asked.
        graph: of its nodes.
        stop: when the run ends.
        folder: where nodes keep their records.
        blow: whom it hits on the way, and when; nobody if left out.
        everything: whether a blow hits all nodes at once, and not its own one alone.
    """

    with running(protocol, graph, folder, stop) as cluster:
        if blow is not None:
            strike(cluster, struck_by(blow, graph, everything), blow.at, blow.seconds, blow.with_walks)
        cluster.wait()
    trace = cluster.trace()
    measurements, again = _replayed(protocol, trace, graph, cluster.trainer)
    machines = [node.machine for node in cluster.nodes]
    size, seconds = 4 * cluster.trainer.width, trace[-1].time
    return Outcome(protocol, graph, trace, measurements, last_output(cluster), again, machines, size, seconds)


ENGINES: dict[str, Callable[..., Outcome]] = {"sim": simulated, "peers": real}


def struck_by(blow: Blow | None, graph: Graph, everything: bool) -> list[int]:
    """Whom it hits: one node, or all at once, so that no walk is left."""
    if blow is None:
        return []
    return list(range(graph.nodes)) if everything else [blow.node]


def _faults(blow: Blow | None, graph: Graph, everything: bool) -> tuple[Fault, ...]:
    if blow is None:
        return ()
    struck = struck_by(blow, graph, everything)
    return tuple(Fault("kill", at=blow.at, node=v, seconds=blow.seconds) for v in struck)


def _replayed(
    protocol: Protocol, trace: list[TraceRow], graph: Graph, trainer: QuadraticTrainer
) -> tuple[list[Measurement], Floats]:
    quick = QuadraticTrainer(graph.nodes, momentum=trainer.momentum)
    messages = protocol.hardened().messages
    setup = ReplaySetup(graph.nodes, trainer.initial(), Evaluate(every=EVERY), messages=messages)
    done = replay(trace, setup, quick)
    return done.measurements, done.output.double().numpy()
