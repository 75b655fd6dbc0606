"""Weighted walks, Walkman and DIGEST: the law that defines each, and where it ends on unlike nodes."""

from __future__ import annotations

import itertools
import random
import struct

import numpy as np
import pytest
from scipy.stats import chisquare

from tests.protocols.test_token_saga import GRAPH, Run
from walktalk import graphs
from walktalk.chains import mean_return_times, metropolis_hastings, metropolis_with_jumps, stationary
from walktalk.core.errors import ChainError, SpecError
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import Digest, MultiWalk, Protocol, Trained, Walkman, WeightedWalk
from walktalk.protocols.mechanisms.tokens.protocol import WalkNode
from walktalk.protocols.mechanisms.tokens.rule import Name, count_in
from walktalk.protocols.walks.walkman import Consensus
from walktalk.protocols.walks.weighted_walk import Weighted
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import Fault, PoissonTiming, RunSetup, Simulation, all_network_views
from walktalk.testing import check_protocol

WEIGHTS = (1.0, 5.0, 2.0, 0.5, 3.0, 4.0)
HEAVY = graphs.cycle(10)  # with one heavy node
STAR_LIKE = (100.0, *[1.0] * 9)


def way(protocol: Protocol, graph: Graph, iterations: int, seed: int = 1) -> list[int]:
    """The nodes that a walk visits, planned without arithmetic."""
    run = RunSetup(protocol, graph, Seed(seed), Stop(iterations=iterations), PoissonTiming(), keep_schedule=False)
    return [row.node for row in Simulation(run).advance().trace if row.event == "trained"]


# -- weighted walks ---------------------------------------------------------------------------------------------------


def test_visits_go_as_the_weights() -> None:
    visits = way(WeightedWalk(WEIGHTS), GRAPH, 20_000)[::10]  # far enough apart to be independent
    seen = np.bincount(visits, minlength=6)
    expected = np.array(WEIGHTS) / sum(WEIGHTS) * len(visits)
    assert chisquare(seen, expected).pvalue > 1e-3
    assert chisquare(seen, np.full(6, len(visits) / 6)).pvalue < 1e-10


def test_the_chain_knows_where_it_is_and_when_it_comes_back() -> None:
    chain = metropolis_hastings(GRAPH, WEIGHTS)
    assert np.allclose(np.asarray(chain.matrix.sum(axis=1)), 1)
    assert np.allclose(stationary(chain), np.array(WEIGHTS) / sum(WEIGHTS))
    assert np.allclose(mean_return_times(chain), sum(WEIGHTS) / np.array(WEIGHTS))
    alike = metropolis_hastings(GRAPH, [3.0] * 6)
    assert np.allclose(alike.matrix.toarray(), metropolis_hastings(GRAPH).matrix.toarray())
    assert np.allclose(stationary(metropolis_hastings(GRAPH)), 1 / 6)
    with pytest.raises(ChainError, match="6 numbers above 0"):
        metropolis_hastings(GRAPH, [1.0, 2.0])


def test_a_heavy_node_traps_a_walk_and_jumps_let_it_out() -> None:
    """It stays for w (d + 1) / 2 steps on average on a cycle; with jumps for 1 / p_J at most."""
    stays = [
        longest_stay(way(p, HEAVY, 5_000), 0) for p in (WeightedWalk(STAR_LIKE), WeightedWalk(STAR_LIKE, jump=0.1))
    ]
    assert stays[0] > 300
    assert stays[1] < 120
    trapped, jumping = metropolis_hastings(HEAVY, STAR_LIKE), metropolis_with_jumps(HEAVY, STAR_LIKE, 0.1)
    assert 1 / (1 - trapped.matrix.toarray()[0, 0]) == pytest.approx(150)
    assert 1 / (1 - jumping.matrix.toarray()[0, 0]) < 15  # a jump of two hops may come back
    assert stationary(jumping)[0] < stationary(trapped)[0]


def longest_stay(visits: list[int], node: int) -> int:
    return max((len(list(run)) for who, run in itertools.groupby(visits) if who == node), default=0)


def test_jumps_move_as_their_chain_says() -> None:
    visits = way(WeightedWalk(WEIGHTS, jump=0.5), GRAPH, 20_000)[::5]
    expected = stationary(metropolis_with_jumps(GRAPH, WEIGHTS, 0.5)) * len(visits)
    assert chisquare(np.bincount(visits, minlength=6), expected).pvalue > 1e-3


def test_with_weights_alike_it_is_multi_walk() -> None:
    ends = [Run(p, GRAPH, Stop(iterations=300)).advance(1.0).output() for p in (WeightedWalk(walks=2), MultiWalk(2))]
    assert np.array_equal(*ends)


def test_every_node_counts_the_same_on_average() -> None:
    """π_v times the scale of the step is 1/V."""
    simulation = Run(WeightedWalk(WEIGHTS), GRAPH, Stop(iterations=1)).simulation
    rates = []
    for machine in simulation.machines:
        assert isinstance(machine, WalkNode)
        assert isinstance(machine.rule, Weighted)
        rates.append(machine.rule.rate)
    assert np.allclose(np.array(rates) * np.array(WEIGHTS) / sum(WEIGHTS), 1 / 6)


def test_a_weighted_walk_stays_beside_the_optimum() -> None:
    assert Run(WeightedWalk(WEIGHTS), GRAPH, Stop(iterations=1000)).advance(1.0).distance > 1e-2


def test_weights_are_one_for_each_node() -> None:
    with pytest.raises(SpecError, match="there are 2 for 6 nodes"):
        WeightedWalk((1.0, 2.0)).check_graph(GRAPH)
    with pytest.raises(SpecError, match="above 0"):
        WeightedWalk((1.0, 0.0))


def test_with_weights_and_jumps_it_passes_in_virtual_time() -> None:
    check_protocol(
        WeightedWalk((1.0, 9.0, 2.0, 3.0), walks=2, jump=0.4, heartbeat=0.1), engines=("sim",), graph=graphs.cycle(4)
    )


# -- Walkman ----------------------------------------------------------------------------------------------------------


def put_in(run: Run, node: int, beta: float) -> np.ndarray | None:
    """x_v + λ_v / β."""
    slots = run.simulation.interpreter.slots[node]
    return run.slot(node, "local") + run.slot(node, "dual") / beta if "local" in slots else None


def test_the_walk_is_the_mean_of_what_nodes_put_in() -> None:
    run, looked = Run(Walkman(beta=2.0), GRAPH, Stop(iterations=120), steps=4), 0
    for k in range(1, 40):
        run.advance(k / 40)
        for node, machine in enumerate(run.simulation.machines):
            assert isinstance(machine, WalkNode)
            if machine.carried:  # else it is on its way
                rule = machine.rule
                assert isinstance(rule, Consensus)
                parts = [put_in(run, v, 2.0) for v in range(6)]
                # A node that it is at for the first time has set out from z, and put nothing in.
                fresh = [run.trainer.initial().double().numpy()] * 6
                known = [m.rule.lineages.noted for m in run.simulation.machines]  # type: ignore[attr-defined]
                each = [part if known[v] and part is not None else fresh[v] for v, part in enumerate(parts)]
                assert np.allclose(run.slot(node, "walk/1"), np.mean(each, axis=0), atol=1e-4)
                looked += 1
    assert looked > 10


def test_walkman_reaches_the_optimum_of_unlike_nodes_also_after_failures() -> None:
    assert Run(Walkman(), GRAPH, Stop(iterations=1500), steps=5).advance(1.0).distance < 1e-4
    faults = (Fault("kill", at=50.0, node="random", seconds=20.0), Fault("kill", at=120.0, node=0, seconds=40.0))
    end = Run(Walkman(heartbeat=5.0), GRAPH, Stop(time=2500.0), faults, steps=5).advance(1.0)
    assert end.distance < 1e-4
    counts = [count_in(token.carried.state) for m in end.simulation.machines for token in m.copies.here.values()]  # type: ignore[attr-defined]
    assert set(counts) <= {6}


@pytest.mark.parametrize(("forged", "taken"), [(0, 1), (2**32 - 1, 6), (4, 4)])
@pytest.mark.parametrize("noted", [False, True])
def test_a_forged_count_becomes_one_that_can_be(forged: int, taken: int, noted: bool) -> None:
    """What a walk carries is data of strangers: nothing divides by zero, and a number is sent on that fits."""
    rule = Consensus(all_network_views(GRAPH)[2], 1.0, 1)
    name = Name(1)
    if noted:
        rule.lineages.notes(1, name)
    _, state = rule.work(1, name.encode() + struct.pack("<I", forged), random.Random(0))
    assert count_in(state) == taken
    _, state = rule.learn(Trained("prox", 1), state)
    assert count_in(state) == (taken if noted else taken + 1)


# -- DIGEST -----------------------------------------------------------------------------------------------------------


def test_the_travelling_model_has_all_that_was_learned_once() -> None:
    """x_0 and 1/V of every update of a node up to the visit that counted it."""
    run = Run(Digest(), GRAPH, Stop(iterations=300))
    trace = run.engine.advance(1.0).traces[0]
    learned, gathered = np.zeros((6, 3)), run.trainer.initial().double().numpy()
    models = np.repeat(gathered[None], 6, 0)
    for row in trace:
        if row.event == "trained":
            update = -0.1 * run.trainer.curvatures[row.node] * (models[row.node] - run.trainer.centres[row.node])
            models[row.node] += update
            learned[row.node] += update
        elif row.event == "counted":
            gathered = gathered + learned[row.node] / 6
            learned[row.node], models[row.node] = 0.0, gathered
    assert np.allclose(run.output(), gathered, atol=1e-3)
    assert len({row.node for row in trace if row.event == "counted"}) == 6


def test_digest_leaves_a_rest_for_unlike_nodes_and_checks_its_start() -> None:
    assert Run(Digest(), GRAPH, Stop(iterations=3000)).advance(1.0).distance > 1e-2
    with pytest.raises(SpecError, match="there is no node 9"):
        Digest(start=9).check_graph(GRAPH)
