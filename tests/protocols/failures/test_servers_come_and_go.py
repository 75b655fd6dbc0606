"""Nodes join a server that runs and leave it for good, on a star and on a tree, while others die for a while."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.protocols.failures.worlds import simulate, some_timings, storms
from tests.support.symbolic import Symbols
from tests.support.unlike import IN_STEP
from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.graphs import Graph
from walktalk.protocols import (
    AsyncSGD,
    DiLoCo,
    FedAsync,
    FedAvg,
    FedBuff,
    FedOpt,
    FedProx,
    Protocol,
    Scaffold,
    StreamingDiLoCo,
)
from walktalk.runtimes.simulator import Fault, NetworkTiming, PoissonTiming, Timing

STAR, TREE = graphs.star(6), graphs.binary_tree(7)
ROUNDS = (FedAvg(), FedAvg(weighted=False), FedProx(), FedOpt(), DiLoCo())
AT_ONCE = (AsyncSGD(), FedBuff(buffer=3), FedAsync())
STREAMS = (StreamingDiLoCo(), StreamingDiLoCo(fragments=3, delay=2), StreamingDiLoCo(fragments=1, delay=0))
ON_A_STAR = [(protocol, STAR) for protocol in (*ROUNDS, *AT_ONCE, *STREAMS)]
ON_A_TREE = [(replace(protocol, tree=True), TREE) for protocol in (*ROUNDS, *AT_ONCE)]  # type: ignore[type-var]
ALL = pytest.mark.parametrize(
    ("protocol", "graph"), [*ON_A_STAR, *ON_A_TREE], ids=[one.label for one, _ in (*ON_A_STAR, *ON_A_TREE)]
)
MOVES = (Fault("join", at=20.2, node=4), Fault("leave", at=40.2, node=1))  # on the tree 1 stands between 0 and 3, 4
EXACT = NetworkTiming(compute=1.0, latency=0.01)


def trained(trace: list[tuple], node: int) -> list[float]:
    return [row.time for row in trace if row.event == "trained" and row.node == node]  # type: ignore[attr-defined]


@ALL
@pytest.mark.parametrize("timing", [EXACT, PoissonTiming()], ids=["network", "poisson"])
def test_one_joins_and_one_leaves_and_all_others_train_on(protocol: Protocol, graph: Graph, timing: Timing) -> None:
    _, trace = simulate(protocol, graph, MOVES, timing, seed=1, until=100.0)
    assert min(trained(trace, 4)) > 20.2
    assert max(trained(trace, 1)) < 60.0
    assert [row.event for row in trace if row.event in ("joined", "left_for_good")] == ["joined", "left_for_good"]
    for node in set(range(graph.nodes)) - {1}:
        assert max(trained(trace, node)) > 90.0
    if timing is EXACT:
        assert not any(row.event == "left_out" for row in trace)


@pytest.mark.parametrize(("protocol", "graph"), [(FedAvg(), STAR), (FedAvg(tree=True), TREE)], ids=["star", "tree"])
def test_a_round_is_the_mean_of_those_that_are_there(protocol: Protocol, graph: Graph) -> None:
    _, trace = simulate(protocol, graph, MOVES, EXACT, seed=1, until=80.0)
    assert Symbols(graph.nodes).play(trace).aggregate[1][-1] == pytest.approx(1.0, abs=1e-9)
    if graph is TREE:
        return
    mixes = [row for row in trace if row.event == "combine" and row.node == 0 and row.slot == "model"][1:]
    counts = [(row.time, len([slot for slot in row.detail if slot.startswith("change")])) for row in mixes]
    assert {count for time, count in counts if time < 20.0} == {5}  # 4 is not there yet
    assert {count for time, count in counts if 23.0 < time < 40.0} == {6}
    assert {count for time, count in counts if time > 42.0} == {5}


def test_one_that_joins_results_as_they_come_begins_with_the_servers_model() -> None:
    _, trace = simulate(AsyncSGD(), STAR, MOVES, EXACT, seed=1, until=80.0)
    first = next(row for row in trace if row.node == 4 and row.event == "combine" and row.slot == "model")
    assert list(first.detail) == ["model/0"]


def test_what_one_that_leaves_has_learned_last_counts() -> None:
    _, trace = simulate(AsyncSGD(), STAR, MOVES, EXACT, seed=1, until=80.0)
    received = sum(row.event == "receive" and row.node == 0 and row.slot == "result/1" for row in trace)
    assert received == len(trained(trace, 1))


@pytest.mark.parametrize("kind", ["join", "leave"])
def test_the_server_itself_can_neither_join_nor_leave(kind: str) -> None:
    with pytest.raises(SpecError, match=rf"node: 2 cannot {kind} while fedavg.* runs: it is the server"):
        simulate(FedAvg(server=2), graphs.complete(4), (Fault(kind, at=5.0, node=2),), EXACT, 1, 20.0)  # type: ignore[arg-type]
    leaves = tuple(Fault("leave", at=at, node="random") for at in (5.0, 10.0, 15.0))
    _, trace = simulate(FedAvg(), STAR, leaves, EXACT, 1, 60.0)
    assert sum(row.event == "left_for_good" and row.node > 0 for row in trace) == 3
    assert max(trained(trace, 0)) > 50.0


def test_control_variates_let_nobody_come_or_go() -> None:
    with pytest.raises(SpecError, match="scaffold is not made for nodes that join while it runs, because the server's"):
        simulate(Scaffold(), STAR, MOVES, EXACT, 1, 20.0)


def test_behind_a_dead_node_of_a_tree_all_wait_and_the_others_do_not() -> None:
    faults = (Fault("kill", at=20.2, node=1, seconds=20.0),)
    for protocol, graph in ON_A_TREE:
        _, trace = simulate(protocol, graph, faults, IN_STEP, seed=1, until=80.0)
        for node in range(7):
            away = [time for time in trained(trace, node) if 24.0 < time < 40.0]
            assert bool(away) == (node not in (1, 3, 4)), (protocol.label, node)
            assert max(trained(trace, node)) > 70.0, (protocol.label, node)


@settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.data())
def test_whatever_happens_those_that_are_left_train_on(data: st.DataObject) -> None:
    protocol, graph = data.draw(st.sampled_from([*ON_A_STAR, *ON_A_TREE]))
    others = data.draw(st.permutations(range(1, graph.nodes)))
    moves = (
        Fault("join", at=data.draw(st.floats(1.0, 60.0)), node=others[0]),
        Fault("leave", at=data.draw(st.floats(1.0, 60.0)), node=others[1]),
        Fault("leave", at=data.draw(st.floats(61.0, 90.0)), node=data.draw(st.sampled_from(others[:2]))),
    )
    faults = (*moves, *data.draw(storms(graph, ("kill", "pause", "partition", "lose", "slow"))))
    timing, seed = data.draw(some_timings), data.draw(st.integers(0, 999))
    _, trace = simulate(protocol, graph, faults, timing, seed, until=500.0)
    gone = {row.node for row in trace if row.event == "left_for_good"}
    late = {row.node for row in trace if row.event == "trained" and row.time > 380.0}
    assert late == set(range(graph.nodes)) - gone
