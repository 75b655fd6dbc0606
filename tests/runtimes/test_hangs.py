"""Nodes whose trainings hang in virtual time: they talk, others go on, and what comes late counts at most once."""

from __future__ import annotations

import pytest

from tests.support.mechanisms import ONE_OF_EACH, slow_unless
from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import PROTOCOLS, Protocol
from walktalk.runtimes.peers import Ledger
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, NetworkTiming, RunSetup, Simulation
from walktalk.testing.conformance import graph_for

LASTS = 400.0  # virtual seconds
HUNG = (100.0, 200.0)  # from, to


def graph_of(protocol: Protocol) -> Graph:
    return graph_for(protocol) if protocol.made_for else graphs.complete(5)


def simulated(protocol: Protocol, *faults: Fault, network: bool = False, seconds: float = LASTS) -> Simulation:
    timing = {"timing": NetworkTiming()} if network else {}
    plan = FaultPlan(faults, Seed(1))
    setup = RunSetup(protocol, graph_of(protocol), Seed(0), Stop(time=seconds), faults=plan, keep_trace=True, **timing)
    simulation = Simulation(setup)
    simulation.rows = simulation.advance().trace  # type: ignore[attr-defined]
    return simulation


def trained(simulation: Simulation, start: float, end: float, but: int = -1) -> int:
    rows = simulation.rows  # type: ignore[attr-defined]
    return sum(row.event == "trained" and start <= row.time < end and row.node != but for row in rows)


SURVIVE = [name for name in PROTOCOLS if name != "centralized" and PROTOCOLS.find(name)().survives_failures]


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=slow_unless(one in (*ONE_OF_EACH, "fedtm", "tour"))) for one in SURVIVE]
)
def test_others_train_on_while_one_hangs(name: str) -> None:
    protocol = PROTOCOLS.find(name)()
    start, end = HUNG
    hang = Fault("hang", at=start, seconds=end - start, node=1)
    simulation, calm = simulated(protocol, hang), simulated(protocol, Fault("lose", at=0.0, share=0.0))
    noticed = start + 40.0
    usual = trained(calm, noticed, end, but=1)
    assert trained(simulation, noticed, end, but=1) >= 0.7 * usual, (usual, name)
    back = trained(simulation, end + 20.0, LASTS) - trained(simulation, end + 20.0, LASTS, but=1)
    assert back > 0  # it takes part again


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("walks", [1, 3])
def test_what_a_hung_training_makes_of_a_walk_counts_nowhere(walks: int, network: bool) -> None:
    protocol = PROTOCOLS.find("multi_walk")(walks=walks)
    faults = [Fault("hang", at=at, seconds=60.0, node=node) for at, node in ((50.0, 0), (90.0, 2), (200.0, 4))]
    simulation = simulated(protocol, *faults, network=network)
    rows = simulation.rows  # type: ignore[attr-defined]
    events = [row.event for row in rows]
    assert events.count("hang") == events.count("trains_again") == 3
    assert "hangs" in events
    assert "handed_on" in events
    assert Ledger(protocol, 5, events.count("train")).play(rows).sound


def test_one_that_dies_while_it_hangs_comes_back_and_trains() -> None:
    protocol = PROTOCOLS.find("multi_walk")(walks=2)
    hang, kill = Fault("hang", at=50.0, seconds=100.0, node=1), Fault("kill", at=80.0, seconds=30.0, node=1)
    simulation = simulated(protocol, hang, kill)
    rows = simulation.rows  # type: ignore[attr-defined]
    assert [row for row in rows if row.event == "trained" and row.node == 1 and row.time > 120.0]
