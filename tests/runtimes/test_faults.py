"""Faults in virtual time: each does what it says, the trace shows it, and the arithmetic stays right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.protocols.failures.worlds import some_graphs, some_timings, storms
from tests.support.runs import Played, setup
from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.core.seeds import Seed
from walktalk.protocols import AGGREGATE, AsyncGossip, Centralized, MultiWalk, Record, SyncGossip
from walktalk.protocols.effects import INITIAL
from walktalk.runtimes.peers.operations.ledger import Sums
from walktalk.runtimes.semantics import Interpreter, Scale, Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, NetworkTiming, PoissonTiming, Simulation

HARDENED = (MultiWalk(2), AsyncGossip(), AsyncGossip("neighbourhood"), SyncGossip())
LINK = ((0, 1), (1, 0))  # one, however it is named
every_protocol = pytest.mark.parametrize("protocol", HARDENED, ids=lambda p: p.label)


def play(protocol, graph, *faults: Fault, until: float = 100.0, **more) -> tuple[Simulation, list[tuple]]:
    plan = FaultPlan(faults, Seed(4))
    simulation = Simulation(setup(protocol, graph, faults=plan, stop=Stop(time=until), **more))
    return simulation, simulation.advance().trace


@settings(max_examples=12, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.data())
def test_executor_agrees_with_an_independent_replay_whatever_fails(data):
    graph = data.draw(some_graphs)
    protocol = data.draw(st.sampled_from(HARDENED))
    plan = FaultPlan(data.draw(storms(graph, ("kill", "pause", "slow", "lose"))), Seed(data.draw(st.integers(0, 99))))
    run = setup(protocol, graph, timing=data.draw(some_timings), faults=plan, stop=Stop(time=80.0))
    played = Played(run, stretches=data.draw(st.integers(1, 4)))
    replay = played.replay().play(played.trace)
    expected = replay.output()
    if protocol.name != "multi_walk":  # walks have an aggregate; here the mean is over the living
        dead = {row.node for row in played.trace if row.event == "kill"} - came_back(played.trace)
        counted = set(played.engine.simulations[0].interpreter.output.members)
        assert counted >= set(range(graph.nodes)) - dead
        assert len(counted & dead) <= (len(dead) == graph.nodes)  # somebody is left in any case
        expected = np.mean([replay.members[node] for node in sorted(counted)], axis=0)
    scale = np.abs(played.trainer.centres).max()
    np.testing.assert_allclose(played.output, expected, rtol=1e-4, atol=1e-4 * scale)


def test_what_an_aggregator_says_that_hung_and_wakes_up_deposed_is_not_the_result():
    """Node 0 wakes and mixes once more with what had come to it; another was elected meanwhile, and hangs then."""
    faults = [Fault("pause", 12.7, node=0, seconds=45.4), *(Fault("pause", 49.3, node=v, seconds=30.2) for v in (1, 2))]
    plan = FaultPlan(tuple(faults), Seed(460))
    run = setup(MultiWalk(2), graphs.complete(3), timing=PoissonTiming(d=1.36), faults=plan, stop=Stop(time=59.7))
    played = Played(run, stretches=1)
    terms = [row.walk for row in played.trace if row.event == "record" and row.detail == "aggregate"]
    assert terms[-1] < max(terms)
    np.testing.assert_allclose(played.output, played.replay().play(played.trace).output(), rtol=1e-4, atol=1e-4)


def came_back(trace: list) -> set[int]:
    """Nodes whose last change was to come back and say so."""
    last: dict[int, str] = {}
    for row in trace:
        if row.event in ("kill", "revive"):
            last[row.node] = row.event
        elif row.event == "record" and last.get(row.node) == "revive":
            last[row.node] = "record"
    return {node for node, event in last.items() if event == "record"}


@every_protocol
def test_the_same_seed_gives_the_same_trace_in_any_number_of_stretches(protocol):
    faults = (Fault("kill", rate=0.05, node="random", seconds=20.0), Fault("lose", at=10.0, share=0.2))

    def trace(stretches: int) -> list[tuple]:
        run = setup(protocol, graphs.complete(5), faults=FaultPlan(faults, Seed(4)), stop=Stop(time=100.0))
        simulation = Simulation(run)
        return [row for k in range(stretches) for row in simulation.advance((k + 1) / stretches).trace]

    assert trace(1) == trace(5)
    assert sum(row.event == "kill" for row in trace(1)) > 1


@every_protocol
def test_a_dead_node_does_nothing_and_gets_nothing(protocol):
    _, trace = play(protocol, graphs.complete(5), Fault("kill", at=30.0, node=3), until=200.0)
    assert not [row for row in trace if row.time > 30.0 and row.node == 3 and row.event not in ("lost", "kill")]


@every_protocol
def test_a_node_that_comes_back_trains_again(protocol):
    simulation, trace = play(protocol, graphs.complete(5), Fault("kill", at=30.0, node=3, seconds=20.0), until=300.0)
    assert [row.time for row in trace if row.event == "revive"] == [50.0]
    assert [row for row in trace if row.event == "trained" and row.node == 3 and row.time > 50.0]
    if protocol.name != "multi_walk":
        assert 3 in simulation.interpreter.output.members


def test_a_killed_node_leaves_the_mean_and_comes_back_into_it():
    simulation, _ = play(AsyncGossip(), graphs.complete(4), Fault("kill", at=30.0, node=2))
    assert sorted(simulation.interpreter.output.members) == [0, 1, 3]


def test_what_a_node_was_still_sending_is_lost_with_it():
    timing = NetworkTiming(compute=1.0, latency=0.1, bandwidth=100.0)  # 84 bytes take 6.7 s
    _, trace = play(AsyncGossip(), graphs.complete(3), Fault("kill", at=4.0, node=0), timing=timing)
    lost = [row for row in trace if row.event == "lost" and row.peer == 0]
    assert lost
    assert not [row for row in trace if row.event == "receive" and row.peer == 0 and row.time > 4.2]


def test_nothing_crosses_a_partition():
    side = (0, 1)
    fault = Fault("partition", at=20.0, nodes=side, seconds=30.0)
    _, trace = play(MultiWalk(2), graphs.complete(5), fault)
    crossed = [row for row in trace if row.event == "receive" and (row.node in side) != (row.peer in side)]
    assert not [row for row in crossed if 20.0 < row.time < 50.0]
    assert [row for row in crossed if row.time > 50.0]
    assert [row.event for row in trace if row.event in ("partition", "heal")] == ["partition", "heal"]


def test_a_share_of_the_messages_is_lost():
    _, trace = play(AsyncGossip(), graphs.complete(5), Fault("lose", at=0.0, share=0.3), until=400.0)
    lost, came = (sum(row.event == event for row in trace) for event in ("lost", "receive"))
    assert 0.25 < lost / (lost + came) < 0.35


def test_a_slow_node_is_slower_and_then_as_before():
    fault = Fault("slow", at=100.0, node=0, factor=10.0, seconds=100.0)
    _, trace = play(AsyncGossip(), graphs.complete(3), fault, until=300.0)
    counts = [
        sum(row.event == "trained" and row.node == 0 and a < row.time <= a + 100 for row in trace)
        for a in (0, 100, 200)
    ]
    assert counts[1] < counts[0] / 4
    assert counts[2] > counts[0] / 2


def changes(trace: list[tuple], *events: str) -> list[tuple[float, str]]:
    return [(row.time, row.event) for row in trace if row.event in events]


def test_a_node_that_died_in_a_training_trains_again_when_it_is_back():
    """Where a node trains one model at a time, what it was at when it died must not keep its place."""
    timing = NetworkTiming(compute=10.0, latency=0.1, bandwidth=1e6)
    faults = (Fault("kill", at=5.0, node=3, seconds=10.0),)
    _, trace = play(AsyncGossip(), graphs.complete(4), *faults, timing=timing)
    begun, done = (
        [row.time for row in trace if row.node == 3 and row.event == event] for event in ("train", "trained")
    )
    assert begun[:2] == [0.0, 15.0]
    assert len(done) >= 2


def test_a_revived_node_that_is_killed_again_stays_dead():
    """The first kill would have ended at 110; the revival was its end, and the second is for good."""
    faults = (
        Fault("kill", at=10.0, node=3, seconds=100.0),
        Fault("revive", at=50.0, node=3),
        Fault("kill", at=60.0, node=3),
    )
    _, trace = play(AsyncGossip(), graphs.complete(5), *faults, until=200.0)
    assert changes(trace, "kill", "revive") == [(10.0, "kill"), (50.0, "revive"), (60.0, "kill")]
    assert not [row for row in trace if row.time > 60.0 and row.node == 3 and row.event != "lost"]


def test_a_node_is_dead_while_anything_that_killed_it_lasts():
    faults = (Fault("kill", at=10.0, node=3, seconds=20.0), Fault("kill", at=20.0, node=3, seconds=50.0))
    _, trace = play(AsyncGossip(), graphs.complete(5), *faults, until=200.0)
    assert changes(trace, "kill", "revive") == [(10.0, "kill"), (70.0, "revive")]


def test_a_pause_ends_with_itself_or_with_its_node():
    faults = (
        Fault("pause", at=10.0, node=3, seconds=100.0),
        Fault("kill", at=20.0, node=3, seconds=10.0),
        Fault("pause", at=60.0, node=3, seconds=100.0),
    )
    _, trace = play(AsyncGossip(), graphs.complete(5), *faults, until=200.0)
    assert changes(trace, "pause", "revive", "resume") == [
        (10.0, "pause"),
        (30.0, "revive"),
        (60.0, "pause"),
        (160.0, "resume"),
    ]
    assert not [row for row in trace if 60.0 < row.time < 160.0 and row.node == 3]
    assert [row for row in trace if 30.0 < row.time < 60.0 and row.node == 3 and row.event == "trained"]


def test_a_node_hangs_while_any_of_its_pauses_lasts():
    faults = (Fault("pause", at=10.0, node=3, seconds=80.0), Fault("pause", at=30.0, node=3, seconds=20.0))
    _, trace = play(AsyncGossip(), graphs.complete(5), *faults, until=200.0)
    assert changes(trace, "pause", "resume") == [(10.0, "pause"), (90.0, "resume")]


def test_slowness_that_is_over_leaves_nothing():
    """49 · (1/49) is not 1 in floating point: factors are taken away, not divided out."""
    faults = [Fault("slow", at=10.0 + k, node=0, factor=49.0, seconds=5.5) for k in range(8)]
    faults += [Fault("slow", at=10.0 + k, link=ends, factor=49.0, seconds=5.5) for k in range(8) for ends in LINK]
    simulation, _ = play(AsyncGossip(), graphs.complete(3), *faults, timing=NetworkTiming())
    assert simulation.trainings.stopwatch.factor(0) == 1.0
    assert simulation.transport.links.slowed == {}


@pytest.mark.parametrize("graph", [graphs.cycle(4), graphs.build("us-five-sites", 20, seed=0)], ids=["cycle", "sites"])
def test_what_is_on_a_link_when_it_becomes_slow_is_late_too(graph):
    """One walk, a hop of 8 s; its link is ten times slower from the middle of its transfer on."""
    sites = graph.sites.with_bandwidth(between=84.0, within=84.0) if graph.sites else None
    graph = replace(graph, sites=sites)

    def trip(*faults: Fault) -> tuple[float, float, tuple[int, int]]:
        timing = NetworkTiming(compute=1.0, latency=0.0, bandwidth=84.0)
        _, trace = play(MultiWalk(1, resilient=False), graph, *faults, until=400.0, timing=timing)
        sent = next(row for row in trace if row.event == "send" and row.slot and not near(row.node, row.peer))
        came = next(row.time for row in trace if row.event == "receive" and row.number == sent[7])
        return sent[0], came, (sent[1], sent[4])

    def near(a: int, b: int) -> bool:
        return graph.sites is not None and graph.sites.site_of[a] == graph.sites.site_of[b]

    begin, end, link = trip(Fault("lose", at=0.0, share=0.0))
    latency = graph.sites.latency_between(*link) if graph.sites else 0.0
    half = (end - begin - latency) / 2
    late = trip(Fault("slow", at=begin + half, link=link, factor=10.0))
    assert late[::2] == (begin, link)
    assert late[1] - begin == pytest.approx(half + 10 * half + 10 * latency)


def test_a_slow_link_means_nothing_where_messages_take_no_time():
    with pytest.raises(SpecError, match=r"link: \[0, 1\] cannot be slow in Poisson timing.*timing.model: network"):
        play(AsyncGossip(), graphs.complete(3), Fault("slow", at=1.0, link=(0, 1)))


def test_a_slow_link_is_slower_and_the_others_are_not():
    timing = NetworkTiming(compute=0.5, latency=0.01, bandwidth=1e4)  # 84 bytes take 67 ms
    fault = Fault("slow", at=100.0, link=(0, 1), factor=20.0, seconds=100.0)
    _, trace = play(AsyncGossip(), graphs.complete(4), fault, until=300.0, timing=timing)
    sent = {row.number: row for row in trace if row.event == "send" and row.slot}
    took: dict[tuple[bool, bool], list[float]] = {}
    for row in trace:
        if row.event == "receive" and row.number in sent:
            start, ends = sent[row.number][0], {row.node, row.peer}
            took.setdefault((ends == {0, 1}, 100.0 < start < 190.0), []).append(row.time - start)
    usual = np.median(took[True, False])
    assert np.median(took[True, True]) > 10 * usual  # the link, while it is slow
    assert np.median(took[False, True]) < 2 * usual  # the other links meanwhile
    assert np.median(took[False, False]) < 2 * usual


@pytest.mark.parametrize(
    ("fault", "event"),
    [
        (Fault("kill", rate=0.05, node="random", seconds=5.0), "kill"),
        (Fault("pause", rate=0.05, node="random", seconds=5.0), "pause"),
        (Fault("partition", rate=0.05, nodes=(0, 1), seconds=5.0), "partition"),
        (Fault("slow", rate=0.05, node="random", factor=3.0, seconds=5.0), "slow"),
        (Fault("slow", rate=0.05, link=(0, 1), factor=3.0, seconds=5.0), "slow"),
        (Fault("lose", rate=0.05, share=0.5, seconds=5.0), "lose"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_everything_can_happen_at_a_random_rate(fault, event):
    timing = NetworkTiming() if fault.link else PoissonTiming()
    _, trace = play(MultiWalk(3), graphs.complete(6), fault, until=400.0, timing=timing)
    times = [row.time for row in trace if row.event == event and row.detail != "0"]
    assert 8 <= len(times) <= 60  # 20 on average; what is undone has a line of its own for some
    gaps = np.diff(times)
    assert gaps.std() > 0.3 * gaps.mean()  # not by the clock
    assert [row for row in trace if row.event == "trained" and row.time > 380.0]


def test_gossip_loses_the_nodes_that_multi_walk_loses():
    graph = graphs.erdos_renyi(12, p=0.4, seed=2)
    faults = (Fault("kill", at=30.0, node="aggregator"), Fault("kill", at=90.0, node="aggregator"))
    killed = [
        [
            row.node
            for row in play(protocol, graph, *faults, until=120.0, timing=PoissonTiming(0.5))[1]
            if row.event == "kill"
        ]
        for protocol in (MultiWalk(6), AsyncGossip())
    ]
    assert killed[0] == killed[1]


def test_the_reference_has_no_faults_and_the_matrix_knows_none():
    _, trace = play(Centralized(), graphs.complete(3), Fault("kill", at=1.0, node=0))
    assert not [row for row in trace if row.event == "kill"]
    with pytest.raises(SpecError, match="knows no failures"):
        play(AsyncGossip("matrix"), graphs.complete(3), Fault("kill", at=1.0, node=0))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "explode", "at": 1.0}, "unknown"),
        ({"kind": "kill", "node": 0}, "either at"),
        ({"kind": "kill", "at": 1.0}, "node: is missing"),
        ({"kind": "kill", "at": 1.0, "node": "king"}, "aggregator"),
        ({"kind": "partition", "at": 1.0}, "nodes: is missing"),
        ({"kind": "slow", "at": 1.0}, "either node or link"),
        ({"kind": "pause", "at": 1.0, "node": 0}, "seconds"),
        ({"kind": "lose", "at": 1.0, "share": 2.0}, "share"),
    ],
)
def test_impossible_faults_are_refused(given, message):
    with pytest.raises(SpecError, match=message):
        Fault(**given)


def test_of_aggregators_the_one_that_died_counts_no_more() -> None:
    """Where all nodes were killed and one had an old checkpoint, terms began anew, and the model of before stayed."""
    interpreter = Interpreter(Sums(), {}, Scale())
    for node in (0, 1):
        interpreter.add_node(node, np.full(1, float(node), np.float32))
    for node, term, shown in ((0, 3, 0.0), (1, 2, 0.0)):
        interpreter.record(node, Record(AGGREGATE, term, INITIAL))
        assert interpreter.output.model("aggregated") == shown  # the higher term counts
    interpreter.output.node_dies(1)
    interpreter.record(1, Record(AGGREGATE, 2, INITIAL))
    assert interpreter.output.model("aggregated") == 0.0
    interpreter.output.node_dies(0)
    interpreter.record(1, Record(AGGREGATE, 2, INITIAL))
    assert interpreter.output.model("aggregated") == 1.0
