"""The orders of other algorithms: what they do not depend on, and where they coincide."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.sparse import eye_array

from walktalk import graphs, theory
from walktalk.chains import Chain, metropolis_hastings
from walktalk.protocols import PROTOCOLS

UNLIKE = theory.Problem(F=1.0, L=1.0, sigma2=0.5, zeta2=4.0)
ALIKE = theory.Problem(F=1.0, L=1.0, sigma2=0.5, zeta2=0.0)


def test_corrections_are_free_of_unlike_data_and_plain_gossip_is_not() -> None:
    network = theory.network(graphs.cycle(16))
    for order in (
        theory.gradient_tracking_order,
        theory.k_gt_order,
        theory.d2_order,
        theory.extra_order,
        theory.push_pull_order,
        theory.scaffold_order,
        theory.fedavg_order,
    ):
        assert order(network, UNLIKE, 1000).total == order(network, ALIKE, 1000).total
    assert theory.d_psgd_order(network, UNLIKE, 1000).total > theory.d_psgd_order(network, ALIKE, 1000).total


def test_on_a_complete_graph_gossip_in_rounds_is_as_slow_only_as_its_noise() -> None:
    """p = 1 and W = 11ᵀ/n: gradient tracking has D-PSGD's order for alike nodes, and a server's start."""
    network = theory.network(graphs.complete(16))
    tracking, plain = (order(network, ALIKE, 1e4) for order in (theory.gradient_tracking_order, theory.d_psgd_order))
    assert tracking.total == pytest.approx(plain.total, rel=1e-6)
    assert plain.start == pytest.approx(theory.scaffold_order(network, ALIKE, 1e4).start, rel=1e-6)


def test_d2_has_the_order_of_d_psgd_on_the_lazy_chain_with_alike_nodes() -> None:
    graph = graphs.erdos_renyi(12, p=0.4, seed=1)
    chain = metropolis_hastings(graph)
    lazy = theory.network(graph, chain=Chain((chain.matrix + eye_array(12)) / 2))
    network = theory.network(graph)
    assert theory.d2_order(network, UNLIKE, 700).total == pytest.approx(theory.d_psgd_order(lazy, ALIKE, 700).total)


def test_noise_is_all_that_counts_from_the_round_on_that_was_published() -> None:
    """V³/p̃² rounds of D² by (I + W)/2, V³/s² of Epidemic Learning: the two terms are equal there."""
    network, noisy = theory.network(graphs.cycle(10)), theory.Problem(F=1.0, L=1.0, sigma2=1.0, zeta2=0.0)
    second = np.sort(np.linalg.eigvalsh((np.eye(10) + network.chain.matrix.toarray()) / 2))[-2]
    bound = theory.d2_order(network, noisy, 10 * 10**3 / (1 - second**2) ** 2)
    assert bound.deviation == pytest.approx(bound.noise)
    bound = theory.epidemic_order(network, noisy, 10 * 10**3 / 3**2, peers=3)
    assert bound.deviation == pytest.approx(bound.noise)


def equal_rounds(order: Callable[[float], theory.Bound], nodes: int) -> float:
    """After how many rounds the noise is as large as the term of models that come apart."""
    low, high = 1e-3, 1e15
    for _ in range(200):
        middle = (low * high) ** 0.5
        bound = order(middle * nodes)
        low, high = (middle, high) if bound.deviation > bound.noise else (low, middle)
    return high


def test_noise_is_all_that_counts_after_the_rounds_of_ceca_and_of_trees() -> None:
    """CECA: V³ up to logarithms; BTPP: V up to logarithms, in both of its terms."""
    noisy = theory.Problem(F=1.0, L=1.0, sigma2=1.0, zeta2=0.0)
    for nodes, rounds in ((5, 3), (16, 4), (24, 5)):
        network = theory.network(graphs.complete(nodes))
        found = equal_rounds(lambda t, n=network: theory.ceca_order(n, noisy, t), nodes)  # type: ignore[misc]
        assert found == pytest.approx(nodes**3 * rounds**2, rel=1e-6)
    for nodes, depth in ((3, 1), (4, 2), (7, 2), (24, 4)):
        network = theory.network(graphs.complete(nodes))
        found = equal_rounds(lambda t, n=network: theory.push_pull_order(n, noisy, t), nodes)  # type: ignore[misc]
        assert found == pytest.approx(nodes * depth**2, rel=1e-6)
        bound = theory.push_pull_order(network, noisy, nodes * nodes * depth**2)
        assert bound.start == pytest.approx(bound.noise)


def test_a_wider_tree_is_less_deep_and_never_worse() -> None:
    network = theory.network(graphs.complete(40))
    totals = [theory.push_pull_order(network, UNLIKE, 4000, branches).total for branches in (2, 3, 6, 39)]
    assert totals == sorted(totals, reverse=True)
    star = theory.push_pull_order(network, UNLIKE, 4000, branches=39)
    assert star.start == theory.scaffold_order(network, UNLIKE, 4000).start


def test_k_gt_is_gradient_tracking_on_a_complete_graph_and_no_better_elsewhere() -> None:
    complete = theory.network(graphs.complete(9))
    assert theory.k_gt_order(complete, UNLIKE, 900).total == pytest.approx(
        theory.gradient_tracking_order(complete, UNLIKE, 900).total
    )
    for graph in (graphs.cycle(9), graphs.star(9), graphs.erdos_renyi(12, p=0.4, seed=1)):
        network = theory.network(graph)
        tracking, local = (f(network, UNLIKE, 900) for f in (theory.gradient_tracking_order, theory.k_gt_order))
        assert local.total >= tracking.total
        assert local.noise == tracking.noise


def test_local_steps_of_k_gt_are_as_many_samples() -> None:
    network = theory.network(graphs.cycle(8))
    one, four = (theory.k_gt_order(network, UNLIKE, 1e9, steps) for steps in (1, 4))
    assert four.noise == pytest.approx(one.noise / 2)
    assert four.start == one.start


def test_teleportation_of_as_many_models_as_nodes_is_gossip_to_which_unlike_data_are_noise() -> None:
    network = theory.network(graphs.cycle(8))
    moved, plain = theory.teleportation_order(network, UNLIKE, 800, network), theory.d_psgd_order(network, UNLIKE, 800)
    assert moved.noise == plain.noise
    assert moved.deviation < plain.deviation
    alike = theory.d_psgd_order(network, ALIKE, 800)
    assert theory.teleportation_order(network, ALIKE, 800, network).total == pytest.approx(alike.total)


def test_teleportation_does_not_slow_down_with_more_nodes_and_one_model_is_plain_sgd() -> None:
    """The order goes up with V by less than (V − k)/(V − 1) of ζ² alone, to that of nodes without end."""
    totals = [theory.teleportation_order(theory.network(graphs.cycle(v)), UNLIKE, 1e5).total for v in (4, 8, 64, 512)]
    assert totals == sorted(totals)
    assert totals[-1] == pytest.approx(totals[-2], rel=0.03)
    assert theory.d_psgd_order(theory.network(graphs.cycle(512)), UNLIKE, 1e5).total > 100 * totals[-1]
    network, alone = theory.network(graphs.cycle(8)), theory.network(graphs.cycle(1))
    one = theory.teleportation_order(network, UNLIKE, 1e6, alone)
    assert one.noise == pytest.approx(((UNLIKE.sigma2 + UNLIKE.zeta2) / 1e6) ** 0.5)
    assert one.start == pytest.approx(1e-6)


def test_what_noise_leaves_in_a_mode_of_extra_and_of_d2() -> None:
    """By their recursions, unit noise once: 2/((1 − λ)(1 + 3λ)) and λ² times that, the head of `exact` says."""
    for eigenvalue in (0.05, 0.3, 0.7, 0.95):
        energy = 2 / ((1 - eigenvalue) * (1 + 3 * eigenvalue))
        assert left_by_noise(eigenvalue, 1.0) == pytest.approx(energy, rel=1e-6)
        assert left_by_noise(eigenvalue, eigenvalue) == pytest.approx(eigenvalue**2 * energy, rel=1e-6)


def left_by_noise(eigenvalue: float, averaged: float) -> float:
    """The sum of squares of x(t+1) = λ(2x(t) − x(t−1)) + a(n(t) − n(t−1)) for n = 1, 0, 0, …"""
    before, now, total = 0.0, 0.0, 0.0
    for noise in (1.0, -1.0, *[0.0] * 2000):
        before, now = now, eigenvalue * (2 * now - before) + averaged * noise
        total += now**2
    return total


def test_extra_has_the_order_of_d2() -> None:
    network = theory.network(graphs.cycle(9))
    assert theory.extra_order(network, UNLIKE, 500) == theory.d2_order(network, UNLIKE, 500)


def test_in_the_long_run_noise_is_all_that_counts_and_nodes_share_it() -> None:
    """Then T iterations are worth the same to everybody: √(FLσ²/T)."""
    network = theory.network(graphs.cycle(8))
    for bound in theory.orders(network, ALIKE, 1e16).values():
        assert bound.total == pytest.approx((0.5 / 1e16) ** 0.5, rel=0.05)


def test_they_fall_with_iterations_and_grow_on_slow_graphs() -> None:
    fast, slow = theory.network(graphs.complete(12)), theory.network(graphs.cycle(12))
    for name, bound in theory.orders(slow, UNLIKE, 500).items():
        assert theory.orders(slow, UNLIKE, 5000)[name].total < bound.total
        assert theory.orders(fast, UNLIKE, 500)[name].total <= bound.total


def test_all_are_of_algorithms_that_there_are() -> None:
    proved = {name for name, kind in PROTOCOLS.items() if kind.proved}
    found = set(theory.orders(theory.network(graphs.cycle(4)), ALIKE, 10))
    assert found
    assert found <= proved
    assert proved - found == {"multi_walk", "async_gossip"}  # of the paper, beside which the orders stand
