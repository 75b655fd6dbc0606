"""A node that swallows walks: without population control they die out, with it their number stays near R."""

from __future__ import annotations

import math
import random
import threading
from pathlib import Path

import pytest

from tests.protocols.failures.worlds import simulate
from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import AsyncGossip, MultiWalk, Protocol, TokenSaga
from walktalk.protocols.mechanisms.tokens.guards import KnownCopies, Lateness
from walktalk.protocols.mechanisms.tokens.hops import NO_TERM, Token
from walktalk.protocols.mechanisms.tokens.resilient import ResilientNode
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, PoissonTiming, RunSetup, Simulation
from walktalk.testing.cluster import SWALLOWS, running

EATER, BEAT = 7, 100.0
GRAPH = graphs.erdos_renyi(50, p=0.3, seed=1)


def populations(protocol: Protocol, graph: Graph, iterations: int, seed: int) -> tuple[list[int], Simulation]:
    """How many walks live after every iteration, without those that were swallowed."""
    plan = FaultPlan((Fault("swallow", at=0.0, node=EATER),), Seed(seed))
    stop = Stop(iterations=iterations)
    run = RunSetup(
        protocol, graph, Seed(seed), stop, PoissonTiming(), faults=plan, keep_schedule=False, keep_trace=False
    )
    simulation, counts = Simulation(run), []
    while not simulation.finished and len(counts) < iterations:
        simulation.advance((len(counts) + 1) / iterations)
        simulation._run_events(math.inf, simulation.agenda.now, math.inf)  # what is on its way arrives
        counts.append(living(simulation))
    return counts, simulation


def living(simulation: Simulation) -> int:
    machines = [m for v, m in enumerate(simulation.machines) if v != EATER and isinstance(m, ResilientNode)]
    return sum(len(m.copies.here) + len(m.copies.next) for m in machines)


@pytest.mark.parametrize("guard", ["average_crossing", "create_if_late"])
def test_the_number_of_walks_stays_between_1_and_2_r(guard: str) -> None:
    counts, _ = populations(MultiWalk(10, heartbeat=BEAT, guard=guard), GRAPH, 10_000, seed=1)  # type: ignore[arg-type]
    assert len(counts) >= 9_900  # several may end in one instant
    assert min(counts) >= 1
    assert max(counts) <= 20


@pytest.mark.parametrize("guard", ["none", "aggregator"])
def test_without_it_they_die_out(guard: str) -> None:
    """The aggregator believes the node that says it has them."""
    _, simulation = populations(MultiWalk(10, heartbeat=BEAT, guard=guard), GRAPH, 10_000, seed=1)  # type: ignore[arg-type]
    assert simulation.finished
    assert simulation.iteration < 2_000
    assert living(simulation) == 0


@pytest.mark.parametrize("protocol", [MultiWalk(1, guard="create_if_late"), TokenSaga(guard="create_if_late")])
def test_walks_that_died_out_are_created_again(protocol: Protocol) -> None:
    faults = (Fault("swallow", at=0.0, node=2),)
    _, trace = simulate(protocol, graphs.complete(6), faults, PoissonTiming(), 3, 500.0)
    assert [row for row in trace if row.event == "swallowed"]
    assert len([row for row in trace if row.event == "forked"]) > 10
    assert [row for row in trace if row.event == "trained" and row.time > 450.0]


def test_a_node_that_has_enough_lets_them_go() -> None:
    faults = (Fault("swallow", at=5.0, node=2, seconds=100.0),)
    _, trace = simulate(MultiWalk(2, guard="none"), graphs.complete(6), faults, PoissonTiming(), 3, 300.0)
    trained = [row.time for row in trace if row.event == "trained"]
    assert {row.node for row in trace if row.event == "swallowed"} == {2}
    assert max(t for t in trained if t < 105.0) < 60.0
    assert len([t for t in trained if t > 105.0]) > 200


def test_a_share_is_swallowed_and_gossip_does_not_notice() -> None:
    _, trace = simulate(
        MultiWalk(2), graphs.complete(4), (Fault("swallow", at=0.0, node=2, share=0.0),), PoissonTiming(), 3, 100.0
    )
    assert not [row for row in trace if row.event == "swallowed"]
    fault = (Fault("swallow", at=0.0, node=2),)
    _, trace = simulate(AsyncGossip(), graphs.complete(4), fault, PoissonTiming(), 3, 100.0)
    assert {row.node for row in trace if row.event == "trained"} == {0, 1, 2, 3}
    with pytest.raises(SpecError, match="swallow needs a number"):
        Fault("swallow", at=0.0)


def test_births_and_deaths_balance_at_r() -> None:
    """q exp(−A n / (V s)) = 1 / V for n = R."""
    for nodes, walks in ((50, 10), (100, 10), (20, 4)):
        late = Lateness(nodes, walks)
        assert late.chance * math.exp(-late.limit(2.0) * walks / (nodes * 2.0)) == pytest.approx(1 / nodes)
    assert not Lateness(50, 10).crossed(1.0, 1.0)
    assert sum(Lateness(50, 10).bears(random.Random(k)) for k in range(1000)) == pytest.approx(200, abs=50)


def test_a_fork_is_not_taken_for_one_that_was_here_long_ago() -> None:
    copies = KnownCopies()
    copies.accept(Token(3, NO_TERM, 0, hop=20, generation=5), now=0.0)
    assert not copies.lags(Token(3, NO_TERM, 0, hop=2, generation=6), None)
    assert copies.lags(Token(3, NO_TERM, 0, hop=2, generation=5), None)


def test_real_nodes_create_what_one_of_them_swallows(tmp_path: Path) -> None:
    """Until it has enough; then it lets its walks go, and takes part again."""
    protocol = MultiWalk(2, heartbeat=0.1, guard="create_if_late")
    file = tmp_path / "2" / SWALLOWS
    file.parent.mkdir()
    file.touch()
    with running(protocol, graphs.complete(4), tmp_path, Stop(time=4.0)) as cluster:
        threading.Timer(2.0, file.unlink).start()
        cluster.wait()
    trace = cluster.trace()
    swallowed = [row for row in trace if row.event == "swallowed"]
    assert {row.node for row in swallowed} == {2}
    assert [row for row in trace if row.event == "forked"]
    trained = [row.node for row in trace if row.event == "trained"]
    assert set(trained) == {0, 1, 2, 3}
