"""One way to run a protocol in virtual time and on real nodes, so that the very same checks apply to both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from walktalk.core.old_names import renamed_keywords
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import Machine, Protocol
from walktalk.records import TraceRow
from walktalk.runtimes.peers import ReplaySetup, replay
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, NetworkTiming, RunSetup
from walktalk.runtimes.stacked import Engine, Measurement
from walktalk.testing.cluster import kill_and_restart, last_output, running
from walktalk.testing.quadratic import Floats, QuadraticTrainer

TRAINING = 0.01  # seconds, as `SlowTrainer` takes on real nodes
EVERY = 20


@dataclass(frozen=True)
class Outage:
    """A node is killed and comes back."""

    at: float  # seconds
    node: int
    seconds: float
    with_walks: int | None = None  # as soon as so many are there; in virtual time `at` must be such a moment


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind, whichever engine ran it."""

    protocol: Protocol
    graph: Graph
    trace: list[TraceRow]
    measurements: list[Measurement]
    output: Floats  # the model that the algorithm puts out
    replayed: Floats  # the same, computed again from the trace
    machines: list[Machine]
    model_bytes: int
    seconds: float


@renamed_keywords(blow="outage")
def simulated(
    protocol: Protocol,
    graph: Graph,
    stop: Stop,
    folder: Path,
    outage: Outage | None = None,
    everything: bool = False,
    faults: tuple[Fault, ...] = (),
) -> Outcome:
    """Runs a protocol in virtual time, in its resilient form, with the timing of real nodes.

    Args:
        protocol: the one that is asked.
        graph: of its nodes.
        stop: when the run ends.
        folder: not used here: nothing is written.
        outage: which node is killed on the way, when, and for how long; none if left out.
        everything: whether it kills all nodes at once, and not its own one alone.
        faults: what else happens on the way.
    """
    trainer = QuadraticTrainer(graph.nodes)
    timing = NetworkTiming(compute=TRAINING, spread=0.2, latency=0.001)
    plan = FaultPlan((*_faults(outage, graph, everything), *faults), Seed(3))
    run = RunSetup(
        protocol.resilient_form(),
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


@renamed_keywords(blow="outage")
def real(
    protocol: Protocol, graph: Graph, stop: Stop, folder: Path, outage: Outage | None = None, everything: bool = False
) -> Outcome:
    """Runs a protocol on real nodes over loopback, each a thread of this process with its own Zenoh session.

    Args:
        protocol: the one that is asked.
        graph: of its nodes.
        stop: when the run ends.
        folder: where nodes keep their records.
        outage: which node is killed on the way, when, and for how long; none if left out.
        everything: whether it kills all nodes at once, and not its own one alone.
    """

    with running(protocol, graph, folder, stop) as cluster:
        if outage is not None:
            kill_and_restart(
                cluster, killed_nodes(outage, graph, everything), outage.at, outage.seconds, outage.with_walks
            )
        cluster.wait()
    trace = cluster.trace()
    measurements, again = _replayed(protocol, trace, graph, cluster.trainer)
    machines = [node.runner.machine for node in cluster.nodes]
    size, seconds = 4 * cluster.trainer.width, trace[-1].time
    return Outcome(protocol, graph, trace, measurements, last_output(cluster), again, machines, size, seconds)


ENGINES: dict[str, Callable[..., Outcome]] = {"sim": simulated, "peers": real}


def killed_nodes(outage: Outage | None, graph: Graph, everything: bool) -> list[int]:
    """The nodes that are killed: one, or all at once, so that no walk is left."""
    if outage is None:
        return []
    return list(range(graph.nodes)) if everything else [outage.node]


def _faults(outage: Outage | None, graph: Graph, everything: bool) -> tuple[Fault, ...]:
    if outage is None:
        return ()
    killed = killed_nodes(outage, graph, everything)
    return tuple(Fault("kill", at=outage.at, node=v, seconds=outage.seconds) for v in killed)


def _replayed(
    protocol: Protocol, trace: list[TraceRow], graph: Graph, trainer: QuadraticTrainer
) -> tuple[list[Measurement], Floats]:
    quick = QuadraticTrainer(graph.nodes, momentum=trainer.momentum)
    messages = protocol.resilient_form().messages
    setup = ReplaySetup(graph.nodes, trainer.initial(), Evaluate(every=EVERY), messages=messages)
    done = replay(trace, setup, quick)
    return done.measurements, done.output.double().numpy()
