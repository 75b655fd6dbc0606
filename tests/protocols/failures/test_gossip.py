"""Gossip under random faults: both sides of an exchange change or neither does, and nobody waits for the dead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.protocols.failures.worlds import simulate, some_graphs, some_timings, storms
from tests.support.runs import Played, setup
from tests.support.symbolic import Symbols, plus
from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.protocols import AGRAF, A2CiD2, AsyncGossip, SyncGossip
from walktalk.protocols.mechanisms.pairs import given_slot, offered_slot
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, PoissonTiming

QUICKLY = (Phase.explicit, Phase.reuse, Phase.generate)


@settings(max_examples=8, deadline=None, phases=QUICKLY)
@given(st.data())
def test_while_nothing_fails_the_models_are_those_of_plain_gossip(data):
    graph = data.draw(some_graphs)
    mixing, seed = (
        data.draw(st.sampled_from(["pairwise", "neighbourhood", "sync", "free", "momentum"])),
        data.draw(st.integers(0, 99)),
    )
    timing, overlap = data.draw(some_timings), data.draw(st.booleans())

    def outcome(**kind) -> np.ndarray:
        kind = {"patience": 1e3, **kind}
        others = {"sync": SyncGossip(**kind), "free": AGRAF(**kind), "momentum": A2CiD2(chi1=4.0, chi2=2.0, **kind)}
        protocol = others[mixing] if mixing in others else AsyncGossip(mixing, overlap=overlap, **kind)
        return Played(setup(protocol, graph, timing=timing, seed=Seed(seed), stop=Stop(iterations=120))).output

    np.testing.assert_array_equal(outcome(), outcome(resilient=True))


@settings(max_examples=10, deadline=None, phases=QUICKLY)
@given(st.data())
def test_an_interrupted_exchange_changes_both_sides_or_neither(data):
    """The sum over nodes holds every update exactly once, whatever is lost, split, slow, hung or dies for a while."""
    graph = data.draw(some_graphs)
    mixing = data.draw(st.sampled_from(["pairwise", "neighbourhood", "free"]))
    faults = data.draw(storms(graph, ("kill", "kill", "pause", "partition", "lose", "slow")))
    protocol = AGRAF() if mixing == "free" else AsyncGossip(mixing, overlap=data.draw(st.booleans()))
    simulation, trace = simulate(
        protocol, graph, faults, data.draw(some_timings), data.draw(st.integers(0, 999)), until=100.0
    )
    symbols = Symbols(graph.nodes).play(trace)
    models = [(slots["model"], 1.0) for slots in symbols.slots]
    total = plus([*models, *(debt for v in range(graph.nodes) for debt in debts(simulation, symbols, v))])
    assert abs(total.pop(-1) - graph.nodes) < 1e-6
    assert set(total) == set(symbols.trained)
    assert all(abs(weight - 1.0) < 1e-6 for weight in total.values())


def debts(simulation, symbols: Symbols, node: int):
    """What a node will add when the answer to an open exchange comes, which the other side has applied already."""
    machine = simulation.machines[node]
    for peer, exchange in machine.exchanges.begun.items():
        other = simulation.machines[peer]
        if other.exchanges.given.get(node) == (exchange.incarnation, exchange.number):
            weight = machine.rule.weight(machine.around, peer)
            yield symbols.slots[peer][given_slot(node)], weight
            yield symbols.slots[node][offered_slot(peer)], -weight


@pytest.mark.parametrize("protocol", [AsyncGossip(), AsyncGossip("neighbourhood"), SyncGossip()], ids=lambda p: p.label)
def test_the_dead_are_left_out_and_the_living_train_on(protocol):
    graph = graphs.complete(5)
    faults = (Fault("kill", at=20.0, node=1), Fault("pause", at=40.0, node=2, seconds=100.0))
    simulation, trace = simulate(protocol, graph, faults, PoissonTiming(), 1, 200)
    assert sorted(simulation.interpreter.output.members) == [0, 2, 3, 4]
    for node in (0, 3, 4):
        times = [row.time for row in trace if row.event == "trained" and row.node == node]
        assert max(np.diff([t for t in times if t > 60.0])) < 25.0  # nobody waits for those
    sends = [row for row in trace if row.event == "send" and row.peer == 1 and row.time > 20.0 and row.slot]
    assert not sends


@pytest.mark.parametrize("protocol", [AsyncGossip(), AsyncGossip("neighbourhood"), AGRAF()], ids=lambda p: p.label)
def test_those_that_come_back_are_taken_in_again(protocol):
    faults = (Fault("kill", at=20.0, node=1, seconds=30.0), Fault("pause", at=20.0, node=2, seconds=40.0))
    simulation, trace = simulate(protocol, graphs.complete(5), faults, PoissonTiming(), 1, 200)
    assert sorted(simulation.interpreter.output.members) == [0, 1, 2, 3, 4]
    for node in (1, 2):
        mixed = [row for row in trace if row.event == "receive" and row.slot and row.peer == node and row.time > 80.0]
        assert {row.node for row in mixed} == {0, 1, 2, 3, 4} - {node}


@settings(max_examples=8, deadline=None, phases=QUICKLY)
@given(st.data())
def test_synchronous_gossip_never_stops(data):
    graph = data.draw(some_graphs)
    faults = data.draw(storms(graph, ("kill", "pause", "partition", "lose", "slow")))
    seed, timing = data.draw(st.integers(0, 999)), data.draw(some_timings)
    _, trace = simulate(SyncGossip(), graph, faults, timing, seed, until=250.0)
    late = {row.node for row in trace if row.event == "trained" and row.time > 200.0}
    assert late == set(range(graph.nodes))
