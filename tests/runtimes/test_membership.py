"""Nodes that join and leave for good in virtual time: they take part, nothing is lost or counted twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.runs import Played, setup
from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.core.seeds import Seed
from walktalk.protocols import (
    AsyncGossip,
    ChocoSGD,
    Digest,
    FedAvg,
    LocalDSGD,
    MultiWalk,
    SyncGossip,
    TokenSaga,
    Walkman,
    WeightedWalk,
)
from walktalk.runtimes.peers import Ledger
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, NetworkTiming, Simulation

WALKS = (
    MultiWalk(2),
    WeightedWalk((1.0, 2.0, 1.0, 3.0, 1.0), walks=2, jump=0.2),
    TokenSaga(),
    Walkman(),
    Digest(patience=1.0),
)
PROTOCOLS = (*WALKS, AsyncGossip(), AsyncGossip("neighbourhood"), SyncGossip())
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.label)
COMES_AND_GOES = (Fault("join", at=40.0, node=4), Fault("leave", at=90.0, node="aggregator"))


def plan(*faults: Fault) -> FaultPlan:
    return FaultPlan(faults, Seed(4))


def play(protocol: Any, graph: graphs.Graph, *faults: Fault, until: float = 250.0, **more: Any) -> list[Any]:
    return Simulation(setup(protocol, graph, faults=plan(*faults), stop=Stop(time=until), **more)).advance().trace


@every_protocol
@pytest.mark.parametrize("slow", [False, True], ids=["poisson", "network"])
def test_one_that_joins_takes_part_and_one_that_leaves_is_gone(protocol: Any, slow: bool) -> None:
    more = {"timing": NetworkTiming(), "model_bytes": 10_000} if slow else {}
    trace = play(protocol, graphs.cycle(5), *COMES_AND_GOES, **more)
    trained = [(row.node, row.time) for row in trace if row.event == "trained"]
    assert min(time for node, time in trained if node == 4) > 40.0
    gone = next(row for row in trace if row.event == "left_for_good")
    assert gone.time < 150.0
    assert not [row for row in trace if row.time > gone.time and row.node == gone.node and row.event != "lost"]
    for node in set(range(5)) - {gone.node}:
        assert [time for other, time in trained if other == node and time > gone.time]


def test_walks_are_all_there_and_what_was_aggregated_is_handed_over() -> None:
    trace = play(MultiWalk(2), graphs.cycle(5), *COMES_AND_GOES)
    events = [row.event for row in trace]
    assert "inherited" in events
    assert "restarted" not in events  # no walk was lost with the one that left
    last = {row.walk for row in trace if row.event == "trained" and row.time > 200.0}
    assert last == {1, 2}
    ledger = Ledger(MultiWalk(2), 5, events.count("train")).play(trace)
    assert ledger.sound
    assert ledger.mixings > 10


@every_protocol
def test_the_arithmetic_can_be_done_again(protocol: Any) -> None:
    played = Played(setup(protocol, graphs.cycle(5), faults=plan(*COMES_AND_GOES), stop=Stop(time=150.0)), stretches=3)
    replay = played.replay().play(played.trace)
    members = sorted(played.engine.simulations[0].interpreter.output.members)
    walks = protocol.family == "walks"
    expected = replay.output() if walks else np.mean([replay.members[node] for node in members], axis=0)
    scale = np.abs(played.trainer.centres).max()
    np.testing.assert_allclose(played.output, expected, rtol=1e-4, atol=1e-4 * scale)


@every_protocol
def test_one_that_joins_does_not_bring_the_initial_model_back(protocol: Any) -> None:
    trace = play(protocol, graphs.complete(5), Fault("join", at=40.0, node=4), until=120.0)
    used = [row for row in trace if row.node == 4 and row.event == "combine" and "initial" in row.detail]
    assert used == []


def test_only_the_dead_are_revived_and_not_those_who_are_to_join_or_have_left() -> None:
    at = [Fault("revive", at=time, node=node) for time in (20.0, 100.0) for node in ("random", 1, 4)]
    leaves = Fault("leave", at=60.0, node=1)
    trace = play(AsyncGossip(), graphs.complete(5), Fault("join", at=40.0, node=4), leaves, *at, until=120.0)
    assert [row.event for row in trace if row.event in ("joined", "revive", "left_for_good")] == [
        "joined", "left_for_good"
    ]  # fmt: skip
    left = next(row.time for row in trace if row.event == "left_for_good")
    assert not [row for row in trace if row.node == 1 and row.time > left and row.event != "lost"]


def test_before_it_joins_the_others_are_connected_without_it() -> None:
    simulation = Simulation(
        setup(MultiWalk(1), graphs.path(5), faults=plan(Fault("join", at=50.0, node=2)), stop=Stop(time=40.0))
    )
    trace = simulation.advance().trace
    assert {row.node for row in trace if row.event == "trained"} == {0, 1, 3, 4}


@pytest.mark.parametrize(
    ("protocol", "fault", "why"),
    [
        (MultiWalk(2), {"kind": "join", "node": 1, "at": 1.0}, "cannot join later"),
        (Digest(start=3), {"kind": "join", "node": 3, "at": 1.0}, "3 cannot join later"),
        (ChocoSGD(), {"kind": "leave", "node": 1, "at": 1.0}, "not made for nodes that leave"),
        (AsyncGossip(resilient=False), {"kind": "leave", "node": 1, "at": 1.0}, r"leave .* \(resilient: false\)"),
        (LocalDSGD(resilient=False), {"kind": "join", "node": 4, "at": 1.0}, r"join .* \(resilient: false\)"),
        (FedAvg(resilient=False), {"kind": "join", "node": 4, "at": 1.0}, r"join .* \(resilient: false\)"),
        (MultiWalk(2, resilient=False), {"kind": "leave", "node": 3, "at": 1.0}, r"leave .* \(resilient: false\)"),
    ],
)
def test_what_cannot_be_is_refused(protocol: Any, fault: dict[str, Any], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        play(protocol, graphs.build(protocol.made_for or "cycle", 5), Fault(**fault))


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"kind": "join", "node": "random", "at": 1.0}, "a node's number"),
        ({"kind": "join", "node": 1, "rate": 1.0}, "a node's number, and at"),
        ({"kind": "leave", "at": 1.0}, "is missing"),
        ({"kind": "leave", "node": 1, "at": 1.0, "seconds": 3.0}, "for good"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(fault: dict[str, Any], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        Fault(**fault)
