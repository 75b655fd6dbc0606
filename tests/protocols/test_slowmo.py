"""SlowMo: its rule, what it coincides with, and where it ends on unlike data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.support.unlike import LR, matrix, run
from walktalk import graphs
from walktalk.graphs import Graph
from walktalk.protocols import FedOpt, LocalDSGD, SlowMo

GRAPH = graphs.erdos_renyi(6, p=0.5, seed=2)
CHANGING = (graphs.one_peer_exponential(8), graphs.random_matchings(6, seed=1))
every_graph = pytest.mark.parametrize("graph", [GRAPH, *CHANGING], ids=lambda graph: graph.name)


@every_graph
@pytest.mark.parametrize("steps", [1, 3])
def test_every_few_rounds_it_takes_a_slow_step(graph: Graph, steps: int) -> None:
    tau, alpha, beta, rounds = 3, 0.8, 0.5, 11
    ended = run(SlowMo(rounds=tau, outer_lr=alpha, outer_momentum=beta, steps=steps), graph, rounds)
    x = np.repeat(ended.trainer.initial().double().numpy()[None], graph.nodes, 0)
    outer, u = x, np.zeros_like(x)
    for t in range(rounds):
        for _ in range(steps):
            x = x - LR * ended.trainer.gradients(x)
        x = matrix(graph, t) @ x
        if t % tau == tau - 1:
            u = beta * u + (outer - x) / LR
            x = outer = outer - alpha * LR * u
    assert np.allclose(ended.members, x, atol=1e-4)
    assert np.allclose([slots["momentum"] for slots in ended.slots], u, atol=1e-3)


@every_graph
def test_slow_steps_without_momentum_are_local_sgd(graph: Graph) -> None:
    slow, plain = (run(p, graph, 9) for p in (SlowMo(rounds=2, outer_momentum=0.0), LocalDSGD()))
    assert np.allclose(slow.members, plain.members, atol=1e-6)
    assert slow.bits == plain.bits


def test_where_everybody_meets_and_every_step_is_slow_it_is_momentum_on_the_mean_change() -> None:
    """FedAvgM, with as much weight for everybody."""
    alpha, beta = 0.3, 0.7
    slow = SlowMo(rounds=1, outer_lr=alpha, outer_momentum=beta, steps=3)
    server = FedOpt(steps=3, optimizer="momentum", server_rate=alpha, beta1=beta, weighted=False)
    assert np.allclose(run(slow, graphs.complete(6), 6).members, run(server, graphs.star(6), 6).output, atol=1e-4)


@every_graph
def test_whoever_meets_the_mean_follows_momentum_on_the_mean_change(graph: Graph) -> None:
    """The mean change of a stretch is that of all gradients in it, as columns of W sum to one."""
    tau, alpha, beta = 2, 0.8, 0.5
    states = [run(SlowMo(tau, alpha, beta), graph, t) for t in range(9)]
    outer, u = states[0].members.mean(0), np.zeros(3)
    for t, (before, after) in enumerate(itertools.pairwise(states)):
        mean = before.members.mean(0) - LR * before.trainer.gradients(before.members).mean(0)
        if t % tau == tau - 1:
            u = beta * u + (outer - mean) / LR
            mean = outer = outer - alpha * LR * u
        assert np.allclose(after.members.mean(0), mean, atol=1e-5)


def test_it_ends_where_gossip_does_by_itself() -> None:
    slow, plain = run(SlowMo(rounds=5), GRAPH, 300), run(LocalDSGD(), GRAPH, 300)
    assert np.allclose(slow.members, plain.members, atol=1e-4)
    assert np.abs(slow.members - slow.trainer.optimum()).max() > 1e-2
    ended = run(SlowMo(rounds=5), graphs.complete(6), 300)
    assert np.abs(ended.members - ended.trainer.optimum()).max() < 1e-4


def test_with_a_small_rate_it_is_there_sooner() -> None:
    far = []
    for protocol in (SlowMo(rounds=5), LocalDSGD()):
        ended = run(protocol, GRAPH, 100, lr=0.01)
        far.append(np.abs(ended.members.mean(0) - ended.trainer.optimum()).max())
    assert far[0] < 0.5 * far[1]


def test_a_rate_that_falls_shortens_what_the_momentum_does() -> None:
    """u is in units of gradients: a tenth of the rate is a tenth of the step."""

    def schedule(progress: float) -> float:
        return 1.0 if progress < 0.25 else 0.1  # a run lasts twice as long as its rounds

    tau, alpha, beta, rounds = 1, 1.0, 0.5, 8
    ended = run(SlowMo(tau, alpha, beta), GRAPH, rounds, schedule=schedule)
    rates = [row.lr for row in ended.trace if row.event == "train" and row.node == 0][:rounds]
    assert {round(rate, 6) for rate in rates} == {0.1, 0.01}
    x = np.repeat(ended.trainer.initial().double().numpy()[None], 6, 0)
    u, w = np.zeros_like(x), matrix(GRAPH)
    for lr in rates:
        u = beta * u + (x - w @ (x - lr * ended.trainer.gradients(x))) / lr
        x = x - alpha * lr * u
    assert np.allclose(ended.members, x, atol=1e-4)
