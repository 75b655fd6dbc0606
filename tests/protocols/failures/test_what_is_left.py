"""The graph that is left after failures: rows made anew from it, the best node elected, late walks retired."""

from __future__ import annotations

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.protocols.failures.worlds import copies, simulate, some_graphs, some_timings
from walktalk import graphs
from walktalk.protocols import MultiWalk
from walktalk.runtimes.simulator import Fault, NetworkTiming, PoissonTiming, Simulation

QUICKLY = (Phase.explicit, Phase.reuse, Phase.generate)


def matrix(simulation: Simulation, nodes: list[int]) -> np.ndarray:
    """The chain that walks follow now, from what each node knows: `metropolis_step` with its own row."""
    place = {node: k for k, node in enumerate(nodes)}
    chain = np.zeros((len(nodes), len(nodes)))
    for node in nodes:
        peers, degrees = simulation.machines[node].members.neighbours.row()
        for peer, degree in zip(peers, degrees, strict=True):
            chain[place[node], place[peer]] = 1.0 / (max(len(peers), degree) + 1)
        chain[place[node], place[node]] = 1.0 - chain[place[node]].sum()
    return chain


@settings(max_examples=15, deadline=None, phases=QUICKLY)
@given(st.data())
def test_the_matrix_of_the_living_is_symmetric_and_doubly_stochastic(data):
    """Assumption 4, on the graph that is left: some nodes are dead for good, one hangs, one came back."""
    graph = data.draw(some_graphs)
    order = data.draw(st.permutations(range(graph.nodes)))
    dead = order[: data.draw(st.integers(0, graph.nodes - 1))]
    rest = order[len(dead) :]
    faults = [Fault("kill", at=data.draw(st.floats(1.0, 40.0)), node=v) for v in dead]
    if len(rest) > 1:
        faults.append(Fault("kill", at=data.draw(st.floats(1.0, 40.0)), node=rest[-1], seconds=20.0))
    hung = set(rest[:1]) if len(rest) > 2 and data.draw(st.booleans()) else set()
    faults += [Fault("pause", at=30.0, node=v, seconds=1000.0) for v in hung]
    walks = data.draw(st.integers(1, min(3, graph.nodes)))
    simulation, _ = simulate(MultiWalk(walks), graph, tuple(faults), data.draw(some_timings), 1, until=150.0)
    living = sorted(set(rest) - hung)
    for node in living:
        peers, degrees = simulation.machines[node].members.neighbours.row()
        assert peers == [u for u in graph.neighbours(node) if u in living]
        assert degrees == [max(1, sum(w in living for w in graph.neighbours(u))) for u in peers]
    chain = matrix(simulation, living)
    np.testing.assert_allclose(chain, chain.T)
    np.testing.assert_allclose(chain.sum(axis=0), 1.0)
    assert (chain.diagonal() > 0).all()


def test_of_nodes_with_as_many_neighbours_the_one_that_computes_fastest_is_elected():
    timing = NetworkTiming(compute=0.5, straggler_share=0.5, straggler_slowdown=5.0)
    graph = graphs.complete(8)
    simulation, trace = simulate(MultiWalk(2), graph, (Fault("kill", at=50.0, node="aggregator"),), timing, 2, 200.0)
    slow = {v for v in range(8) if simulation.trainings.stopwatch.factor(v) > 1.0}
    assert 1 in slow  # else it would be elected for its number
    (elected,) = [row.node for row in trace if row.event == "elected"]
    assert elected == min(set(range(1, 8)) - slow)


def test_a_walk_that_was_given_up_and_turns_up_after_all_is_retired():
    """Cut off with one node for a long time, it is started again on the other side, and two of it meet after that."""
    graph = graphs.complete(5)
    faults = (Fault("partition", at=40.0, nodes=(3, 4), seconds=150.0),)
    simulation, trace = simulate(MultiWalk(4), graph, faults, PoissonTiming(0.5), 3, 600.0)
    restarted = {row.walk for row in trace if row.event == "restarted"}
    retired = [row for row in trace if row.event == "retired" and row.time > 190.0]
    assert restarted
    assert retired
    assert {walk: len(places) for walk, places in copies(simulation).items()} == {1: 1, 2: 1, 3: 1, 4: 1}


def test_without_a_centre_a_walk_that_died_is_forked_and_there_are_r_again():
    """Nobody but the nodes that walks visit is asked: the aggregator lives, and restarts nothing."""
    graph, guard = graphs.complete(6), "decentralized"
    faults = tuple(Fault("kill", at=at, node=5, seconds=5.0) for at in (150.0, 300.0, 450.0))
    protocol = MultiWalk(3, guard=guard)
    simulation, trace = simulate(protocol, graph, faults, PoissonTiming(0.5), 2, 1500.0)
    assert [row for row in trace if row.event == "forked"]
    assert not [row for row in trace if row.event == "restarted"]
    assert {walk: len(places) for walk, places in copies(simulation).items()} == {1: 1, 2: 1, 3: 1}
