"""Relatives of gradient tracking: the law that defines each, what it coincides with, and where it ends."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.unlike import LR, matrix, run
from walktalk import graphs
from walktalk.graphs import Graph
from walktalk.protocols import GradientTracking, LocalDSGD, MomentumTracking

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
