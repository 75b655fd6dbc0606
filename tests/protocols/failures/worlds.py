"""Random networks in which things go wrong for a while, and then no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.support.runs import graphs_of
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import MultiWalk, Protocol
from walktalk.protocols.mechanisms.tokens.guards import Guard
from walktalk.protocols.mechanisms.tokens.mixing import TermMixer
from walktalk.protocols.mechanisms.tokens.resilient import ResilientNode
from walktalk.protocols.walks.multi_walk import AlgorithmOne
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, NetworkTiming, PoissonTiming, RunSetup, Simulation

STORM = 60.0  # seconds in which things go wrong
CALM = 500.0  # seconds after that: many times what any guard waits

some_graphs = graphs_of(2, most=8)
some_timings = st.one_of(
    st.floats(0.3, 2.0).map(lambda d: PoissonTiming(d=d)),
    st.builds(
        NetworkTiming,
        compute=st.floats(0.2, 2.0),
        spread=st.floats(0, 0.7),
        latency=st.floats(0.0, 0.3),
        bandwidth=st.sampled_from([2e4, 1e6]),
    ),
)
times = st.floats(0.0, STORM)
lengths = st.floats(0.5, STORM)


@st.composite
def storms(draw: st.DrawFn, graph: Graph, kinds: tuple[str, ...]) -> tuple[Fault, ...]:
    """Some faults, all over (undone, or done for good) by 2 · STORM. A graph stays connected: killed ones come back."""
    faults = []
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5)):
        when: dict[str, Any] = {"at": draw(times), "seconds": draw(lengths)}
        if kind in ("kill", "pause"):
            when["node"] = draw(st.one_of(st.sampled_from(["aggregator", "random"]), st.integers(0, graph.nodes - 1)))
        elif kind == "partition":
            when["nodes"] = tuple(draw(st.sets(st.integers(0, graph.nodes - 1), min_size=1)))
        elif kind == "slow":
            when |= {"node": draw(st.integers(0, graph.nodes - 1)), "factor": draw(st.floats(1.5, 10))}
        elif kind == "lose":
            when["share"] = draw(st.floats(0.0, 0.5))
        faults.append(Fault(kind, **when))  # type: ignore[arg-type]
    return tuple(faults)


def term_mixer(walks: int, term_id: tuple[int, int], guard: Guard) -> TermMixer:
    """What the aggregator of a term has, with Algorithm 1 as its rule."""
    return TermMixer(walks, term_id, guard, AlgorithmOne())


class Scene(NamedTuple):
    """Walks in a storm."""

    graph: Graph
    protocol: MultiWalk
    faults: tuple[Fault, ...]
    timing: PoissonTiming | NetworkTiming
    seed: int


@st.composite
def scenes(draw: st.DrawFn, kinds: tuple[str, ...], most_walks: int = 3) -> Scene:
    graph = draw(some_graphs)
    walks = draw(st.integers(1, min(most_walks, graph.nodes)))
    guard = draw(st.sampled_from(["aggregator", "aggregator", "decentralized"]))
    faults, timing = draw(storms(graph, kinds)), draw(some_timings)
    return Scene(graph, MultiWalk(walks, guard=guard), faults, timing, draw(st.integers(0, 999)))


def simulate(
    protocol: Protocol, graph: Graph, faults: tuple[Fault, ...], timing: Any, seed: int, until: float = STORM * 2 + CALM
) -> tuple[Simulation, list[tuple]]:
    run = RunSetup(
        protocol,
        graph,
        Seed(seed),
        Stop(time=until),
        timing=timing,
        model_bytes=400,
        faults=FaultPlan(faults, Seed(seed)),
        keep_schedule=False,
    )
    simulation = Simulation(run)
    return simulation, simulation.advance().trace


def looks(
    protocol: Protocol, graph: Graph, faults: tuple[Fault, ...], timing: Any, seed: int, times: tuple[float, ...]
) -> Iterator[tuple[Simulation, list[tuple]]]:
    """The simulation at several moments, with its trace up to then."""
    plan = FaultPlan(faults, Seed(seed))
    run = RunSetup(
        protocol,
        graph,
        Seed(seed),
        Stop(time=times[-1]),
        timing=timing,
        model_bytes=400,
        faults=plan,
        keep_schedule=False,
    )
    simulation, trace = Simulation(run), []
    for time in times:
        trace += simulation.advance(time / times[-1]).trace
        yield simulation, trace


def copies(simulation: Simulation) -> dict[int, set[tuple]]:
    """Walk -> the places of its living copies; one that is sent and not acknowledged counts where it arrived."""
    found: dict[int, set[tuple]] = {}
    dead = simulation.faults.dead if simulation.faults else set()
    machines = [m for v, m in enumerate(simulation.machines) if v not in dead and isinstance(m, ResilientNode)]
    for machine in machines:
        for token in (*machine.copies.here.values(), *machine.copies.next.values()):
            found.setdefault(token.walk, set()).add(token.place)
    for machine in machines:
        for walk, hop in machine.hops.leaving.items():
            if walk not in found:
                found[walk] = {hop.token.place}
    return found
