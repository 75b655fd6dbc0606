"""Relatives of gradient tracking: the law that defines each, what it coincides with, and where it ends."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.support.unlike import LR, matrix, run
from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.graphs import Graph
from walktalk.protocols import EXTRA, KGT, GradientTracking, LocalDSGD, MomentumTracking, Scaffold

GRAPH = graphs.erdos_renyi(6, p=0.5, seed=2)
CHANGING = (graphs.one_peer_exponential(8), graphs.random_matchings(6, seed=1))
every_graph = pytest.mark.parametrize("graph", [GRAPH, *CHANGING], ids=lambda graph: graph.name)


# -- Momentum Tracking ------------------------------------------------------------------------------------------------


@every_graph
@pytest.mark.parametrize("mix_first", [True, False])
def test_momentum_tracking_follows_its_rule(graph: Graph, mix_first: bool) -> None:
    """As it is published, with corrections c in place of trackers."""
    beta, rounds = 0.7, 10
    ended = run(MomentumTracking(beta, mix_first), graph, rounds)
    x = np.repeat(ended.trainer.initial().double().numpy()[None], graph.nodes, 0)
    u, c = np.zeros_like(x), np.zeros_like(x)
    for t in range(rounds):
        w = matrix(graph, t)
        u = beta * u + ended.trainer.gradients(x)
        x = w @ x - LR * (u - c) if mix_first else w @ (x - LR * (u - c))
        c = w @ (c - u) + u
    assert np.allclose(ended.members, x, atol=1e-4)


@every_graph
def test_without_momentum_it_is_gradient_tracking(graph: Graph) -> None:
    ours, plain = (run(p, graph, 10) for p in (MomentumTracking(0.0, mix_first=False), GradientTracking()))
    assert np.array_equal(ours.members, plain.members)
    assert ours.bits == plain.bits


@every_graph
def test_the_mean_of_trackers_is_the_mean_of_momenta(graph: Graph) -> None:
    ended = run(MomentumTracking(), graph, 10)
    tracked, last = ([slots[name] for slots in ended.slots] for name in ("tracker", "last"))
    assert np.ptp(tracked, axis=0).max() > 0.01
    assert np.allclose(np.mean(tracked, 0), np.mean(last, 0), atol=1e-4)


def test_where_everybody_meets_it_is_sgd_with_momentum_on_everybodys_data() -> None:
    """From the second round on, in which trackers have met."""
    beta = 0.6
    states = [run(MomentumTracking(beta, mix_first=False), graphs.complete(6), t).members for t in range(7)]
    ended = run(MomentumTracking(beta, mix_first=False), graphs.complete(6), 1)
    x, u = states[0][0], np.zeros(3)
    for after in states[1:]:
        u = beta * u + ended.trainer.gradients(np.repeat(x[None], 6, 0)).mean(0)
        x = x - LR * u
        assert np.allclose(after, x, atol=1e-4)


# -- where they end on unlike data ------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [GRAPH, CHANGING[1]], ids=lambda graph: graph.name)
@pytest.mark.parametrize(
    "protocol", [MomentumTracking(), MomentumTracking(0.8, mix_first=False)], ids=lambda p: p.label
)
def test_it_reaches_the_optimum_where_a_momentum_of_ones_own_does_not(protocol: MomentumTracking, graph: Graph) -> None:
    ended = run(protocol, graph, 400, lr=0.02)
    assert np.abs(ended.members - ended.trainer.optimum()).max() < 1e-4
    beside = run(LocalDSGD(), graph, 400, lr=0.02, momentum=protocol.beta)
    assert np.abs(beside.members - beside.trainer.optimum()).max() > 1e-2


# -- K-GT -------------------------------------------------------------------------------------------------------------


@every_graph
@pytest.mark.parametrize("steps", [1, 4])
def test_k_gt_follows_its_rule(graph: Graph, steps: int) -> None:
    eta_s, rounds = 0.8, 9
    ended = run(KGT(steps, eta_s), graph, rounds)
    x = np.repeat(ended.trainer.initial().double().numpy()[None], graph.nodes, 0)
    c = np.zeros_like(x)
    for t in range(rounds):
        y, w = x, matrix(graph, t)
        for _ in range(steps):
            y = y - LR * (ended.trainer.gradients(y) + c)
        z = (x - y) / (steps * LR)
        x, c = w @ (x - eta_s * steps * LR * z), c - z + w @ z
    assert np.allclose(ended.members, x, atol=1e-4)
    assert np.allclose([slots["correction"] for slots in ended.slots], c, atol=1e-3)


@every_graph
def test_k_gt_with_one_local_step_is_gradient_tracking(graph: Graph) -> None:
    ours, plain = (run(p, graph, 10) for p in (KGT(steps=1), GradientTracking()))
    assert np.allclose(ours.members, plain.members, atol=1e-5)
    assert ours.bits == plain.bits


@every_graph
def test_corrections_add_up_to_zero(graph: Graph) -> None:
    corrections = [slots["correction"] for slots in run(KGT(steps=5), graph, 10).slots]
    assert np.abs(corrections).max() > 0.01
    assert np.allclose(np.mean(corrections, 0), 0.0, atol=1e-5)


def test_k_gt_is_scaffold_where_everybody_meets() -> None:
    """c − c_i of SCAFFOLD with option II is c_i of K-GT, one of whose nodes is as good a server as another."""
    ours, server = run(KGT(steps=4), graphs.complete(6), 7), run(Scaffold(steps=4), graphs.star(6), 7)
    assert np.allclose(ours.members, server.output, atol=1e-4)


def test_a_rate_of_zero_teaches_nothing() -> None:
    ended = run(KGT(steps=2), GRAPH, 5, lr=0.0)
    assert np.allclose(ended.members, ended.trainer.initial().numpy(), atol=1e-6)
    assert not np.any([slots["correction"] for slots in ended.slots])


@pytest.mark.parametrize("graph", [GRAPH, CHANGING[1]], ids=lambda graph: graph.name)
def test_k_gt_reaches_the_optimum_where_local_steps_drift(graph: Graph) -> None:
    ended = run(KGT(steps=5), graph, 400, lr=0.03)
    assert np.abs(ended.members - ended.trainer.optimum()).max() < 1e-4
    beside = run(LocalDSGD(steps=5), graph, 400, lr=0.03)
    assert np.abs(beside.members - beside.trainer.optimum()).max() > 1e-2


# -- EXTRA ------------------------------------------------------------------------------------------------------------

FIXED = [GRAPH, graphs.hypercube(3), graphs.cycle(5)]
every_fixed_graph = pytest.mark.parametrize("graph", FIXED, ids=lambda graph: graph.name)


@every_fixed_graph
def test_extra_follows_its_rule(graph: Graph) -> None:
    rounds, w = 10, matrix(graph)
    ended = run(EXTRA(), graph, rounds)
    before = np.repeat(ended.trainer.initial().double().numpy()[None], graph.nodes, 0)
    x = w @ before - LR * ended.trainer.gradients(before)
    for _ in range(rounds - 1):
        learned = LR * (ended.trainer.gradients(x) - ended.trainer.gradients(before))
        before, x = x, x + w @ x - 0.5 * (before + w @ before) - learned
    assert np.allclose(ended.members, x, atol=1e-4)


def test_what_was_corrected_adds_up() -> None:
    """x(t+1) = W x(t) − η g(t) − ½ (I − W) Σ_{s<t} x(s)."""
    w = matrix(GRAPH)
    states = [run(EXTRA(), GRAPH, t) for t in range(8)]
    total = np.zeros_like(states[0].members)
    for before, after in itertools.pairwise(states):
        expected = w @ before.members - LR * before.trainer.gradients(before.members) - 0.5 * (total - w @ total)
        assert np.allclose(after.members, expected, atol=1e-4)
        total = total + before.members


def test_extra_costs_what_d_psgd_costs() -> None:
    assert run(EXTRA(), GRAPH, 5).bits == run(LocalDSGD(), GRAPH, 5).bits


@every_fixed_graph
def test_extra_reaches_the_optimum(graph: Graph) -> None:
    ended = run(EXTRA(), graph, 400)
    assert np.abs(ended.members - ended.trainer.optimum()).max() < 1e-4


def test_extra_falls_at_a_linear_rate() -> None:
    """The distance to the optimum is cut by as much in every stretch of rounds, until rounding ends it."""
    far = []
    for rounds in (20, 40, 60, 80):
        ended = run(EXTRA(), GRAPH, rounds)
        far.append(np.linalg.norm(ended.members - ended.trainer.optimum()))
    cuts = [later / sooner for sooner, later in itertools.pairwise(far)]
    assert max(cuts) < 0.7
    assert max(cuts) < 2 * min(cuts)


def test_its_mean_stays_where_no_gradient_moves_it() -> None:
    ended = run(EXTRA(), graphs.cycle(3), 1000, lr=0.0)
    start = ended.trainer.initial().numpy()
    assert np.abs(ended.members - start).max() < 1e-4 * np.abs(start).max()


def test_extra_needs_a_graph_that_stays() -> None:
    with pytest.raises(SpecError, match="changes by round"):
        EXTRA().check_graph(CHANGING[1])
