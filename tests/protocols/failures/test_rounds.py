"""Protocols in rounds where messages and nodes are lost: nobody waits, weights sum to one, the dead are left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.protocols.failures.worlds import simulate, some_timings, storms
from tests.support.runs import Played, setup
from tests.support.symbolic import Symbols
from tests.support.unlike import IN_STEP, run
from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import (
    CECA,
    D2,
    EXTRA,
    KGT,
    OSGP,
    SGP,
    EpidemicLearning,
    GradientTracking,
    LocalDSGD,
    MomentumTracking,
    NoLoCo,
    Protocol,
    PushPull,
    QGDSGDm,
    RelaySGD,
    SlowMo,
    SyncGossip,
    compressed,
)
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, FaultPlan, NetworkTiming, PoissonTiming

QUICKLY = (Phase.explicit, Phase.reuse, Phase.generate)
LOPSIDED = Graph.from_arcs(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (0, 3), (2, 4)], "lopsided")
ANYWHERE: list[tuple[Protocol, Graph]] = [
    (LocalDSGD(), graphs.erdos_renyi(6, p=0.5, seed=2)),
    (LocalDSGD(), graphs.exponential(6)),
    (SlowMo(rounds=3), graphs.one_peer_exponential(8)),
    (QGDSGDm(), graphs.one_peer_exponential(8)),
    (QGDSGDm(missing="divide"), graphs.cycle(5)),
    (D2(), graphs.cycle(5)),
    (GradientTracking(), graphs.cycle(5)),
    (MomentumTracking(), graphs.cycle(5)),
    (KGT(), graphs.cycle(5)),
    (EXTRA(), graphs.cycle(5)),
    (NoLoCo(), graphs.random_matchings(6, seed=1)),
    (EpidemicLearning(draw="local"), graphs.complete(6)),
    (CECA(), graphs.complete(6)),
    (RelaySGD(), graphs.binary_tree(6)),
    (PushPull(), graphs.binary_tree(6)),
    (PushPull(branches=5), graphs.complete(6)),
    (SGP(), graphs.one_peer_exponential(8)),
    (SGP(), LOPSIDED),
    (SGP(exchanges=2), graphs.one_peer_exponential(8)),
    (SyncGossip(), graphs.cycle(5)),
    (OSGP(), graphs.exponential(6)),
]
PLACES = pytest.mark.parametrize(("protocol", "graph"), ANYWHERE, ids=lambda one: getattr(one, "label", one.name))
TWO_TREES = (RelaySGD(trees="two_binary"), graphs.two_binary_trees(6))


def losing(share: float) -> tuple[Fault, ...]:
    return (Fault("lose", at=0.0, share=share),)


@pytest.mark.parametrize(("protocol", "graph"), [*ANYWHERE, TWO_TREES], ids=lambda one: getattr(one, "label", one.name))
def test_while_nothing_fails_the_models_are_those_of_the_plain_form(protocol: Protocol, graph: Graph) -> None:
    plain, resilient = (
        type(protocol)(**{**protocol.settings, "resilient": form, "patience": 1e3}) for form in (False, True)
    )
    runs = [
        Played(setup(p, graph, timing=PoissonTiming(), stop=Stop(iterations=80), seed=Seed(3)))
        for p in (plain, resilient)
    ]
    np.testing.assert_array_equal(runs[0].output, runs[1].output)
    assert runs[0].engine.simulations[0].bytes == runs[1].engine.simulations[0].bytes


@PLACES
def test_whatever_is_lost_weights_sum_to_one_and_nobody_waits(protocol: Protocol, graph: Graph) -> None:
    """A lost message is noticed when it would have come, so as many rounds go by as without losses."""
    simulation, trace = simulate(protocol, graph, losing(0.3), IN_STEP, seed=1, until=40.5)
    assert sum(row.event == "lost" for row in trace) > 0.2 * sum(row.event == "send" for row in trace)
    assert not any(row.event in ("left_out", "catches_up") for row in trace)
    assert simulation.iteration == 40 * graph.nodes
    symbols = Symbols(graph.nodes).play(trace)
    assert sorted(symbols.members) == list(range(graph.nodes))
    for model in symbols.members.values():
        assert model[-1] == pytest.approx(1.0, abs=1e-9)  # the initial model, that all began with


@pytest.mark.parametrize(
    ("protocol", "graph"),
    [(LocalDSGD(), graphs.cycle(6)), (SGP(), graphs.one_peer_exponential(8)), (SGP(), LOPSIDED)],
    ids=lambda one: getattr(one, "label", one.name),
)
def test_losses_favour_nobodys_updates(protocol: Protocol, graph: Graph) -> None:
    """All that was ever learned counts once in the sum over nodes, on average: the weights of the first 20 rounds."""
    totals = []
    for seed in range(4):
        _, trace = simulate(protocol, graph, losing(0.1), IN_STEP, seed=seed, until=40.5)
        symbols = Symbols(graph.nodes).play(trace)
        early = [number for number in symbols.trained if number < 20 * graph.nodes]
        totals += [sum(model.get(number, 0.0) for model in symbols.members.values()) for number in early]
    assert np.mean(totals) == pytest.approx(1.0, abs=0.05)


def test_what_a_lost_share_weighed_is_made_up_for() -> None:
    """Where rows sum to one, too, weights stay 1; else they stay what they are without losses."""
    for graph in (graphs.one_peer_exponential(8), LOPSIDED):
        weights = []
        for share in (0.0, 0.3):
            simulation, _ = simulate(SGP(resilient=True), graph, losing(share), IN_STEP, seed=2, until=100.5)
            weights.append([machine.rule.weight for machine in simulation.machines])  # type: ignore[attr-defined]
        assert weights[1] == pytest.approx(weights[0], rel=0.5 if graph is LOPSIDED else 1e-12)


@pytest.mark.parametrize("delay", [0, 1])
def test_weights_of_pushes_that_overlap_do_not_run_away_when_nodes_are_left_out(delay: int) -> None:
    """Shares that are too late are made up for: without that a weight falls by half in every round, and steps grow."""
    faults = (Fault("kill", at=10.0, node=1, seconds=15.0), Fault("pause", at=20.0, node=2, seconds=15.0))
    graph = graphs.one_peer_exponential(8)
    simulation, _ = simulate(OSGP(delay=delay), graph, faults, NetworkTiming(), seed=1, until=36.0)
    weights = [machine.rule.weight for machine in simulation.machines]  # type: ignore[attr-defined]
    assert 0.1 < min(weights) <= max(weights) < 3.0


def test_a_sum_that_is_lost_counts_for_nothing() -> None:
    """On a path 0 – 1 – 2, in the round in which 0 misses the sum of 1, its model of before stands for both others.

    What it has just learned weighs a third whatever is lost: learning rates are made for that.
    """
    _, trace = simulate(RelaySGD(), graphs.path(3), losing(0.5), IN_STEP, seed=4, until=30.5)
    mixes = [row for row in trace if row.event == "combine" and row.slot == "model" and row.node == 0][1:]
    missing = [round(3 * row.detail.get("model", 0.0)) for row in mixes]
    assert set(missing) == {0, 1, 2}  # all came, the sum had lost 2 on its way, or the sum was lost
    for row, thirds in zip(mixes, missing, strict=True):
        assert ("from/relay/1" in row.detail) == (thirds < 2)
        assert row.detail.get("from/relay/1", 1 / 3) == pytest.approx(1 / 3)
        assert row.detail["half"] == pytest.approx(1 / 3)


def test_divided_weights_are_alike_on_a_ring_whatever_comes() -> None:
    _, trace = simulate(QGDSGDm(missing="divide"), graphs.cycle(5), losing(0.4), IN_STEP, seed=1, until=30.5)
    mixes = [row.detail for row in trace if row.event == "combine" and row.slot == "mixed"]
    assert {len(weights) for weights in mixes} == {1, 2, 3}  # both, one or none lost
    for weights in mixes:
        assert list(weights.values()) == pytest.approx([1 / len(weights)] * len(weights))


@PLACES
def test_the_dead_are_left_out_and_taken_in_again(protocol: Protocol, graph: Graph) -> None:
    faults = (Fault("kill", at=20.0, node=1, seconds=40.0), Fault("pause", at=30.0, node=2, seconds=20.0))
    simulation, trace = simulate(protocol, graph, faults, PoissonTiming(), 1, 400.0)
    assert sorted(simulation.interpreter.output.members) == list(range(graph.nodes))
    assert any(row.event == "trained" and row.node not in (1, 2) and 40.0 < row.time < 60.0 for row in trace)
    assert not any(row.event == "send" and row.peer == 1 and 21.0 < row.time < 59.0 for row in trace)
    mixed = {row.peer for row in trace if row.event == "receive" and row.slot and row.time > 300.0}
    used = {row.node: row.detail for row in trace if row.event == "combine" and row.time > 300.0}
    assert mixed == set(range(graph.nodes))
    assert set(used) == mixed


@settings(max_examples=4, deadline=None, phases=QUICKLY)
@given(st.data())
def test_rounds_never_stop(data: st.DataObject) -> None:
    protocol, graph = data.draw(st.sampled_from([*ANYWHERE, TWO_TREES]))
    faults = data.draw(storms(graph, ("kill", "pause", "partition", "lose", "slow")))
    seed, timing = data.draw(st.integers(0, 999)), data.draw(some_timings)
    _, trace = simulate(protocol, graph, faults, timing, seed, until=300.0)
    late = {row.node for row in trace if row.event == "trained" and row.time > 240.0}
    assert late == set(range(graph.nodes))


@pytest.mark.parametrize("feedback", [False, True])
def test_behind_a_codec_lost_messages_are_noticed_too(feedback: bool) -> None:
    protocol = compressed(LocalDSGD(), "int8", feedback)
    _, trace = simulate(protocol, graphs.cycle(5), losing(0.2), PoissonTiming(), 1, 200.0)
    assert {row.node for row in trace if row.event == "trained" and row.time > 150.0} == set(range(5))


@pytest.mark.parametrize(
    "protocol", [D2(), EXTRA(), GradientTracking(), MomentumTracking(0.5), KGT()], ids=lambda p: p.label
)
def test_what_is_exact_without_losses_leaves_a_rest_with_them(protocol: Protocol) -> None:
    graph, rests = graphs.cycle(5), []
    for faults in ((), losing(0.1)):
        ended = run(protocol, graph, 150, faults=FaultPlan(faults, Seed(1)))
        rests.append(np.abs(ended.members - ended.trainer.optimum()).max())
    assert rests[0] < 1e-3
    assert 0.01 < rests[1] < 1.0
