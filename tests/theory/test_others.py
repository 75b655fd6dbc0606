"""The orders of other algorithms: what they do not depend on, and where they coincide."""

from __future__ import annotations

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
    for order in (theory.gradient_tracking_order, theory.d2_order, theory.scaffold_order, theory.fedavg_order):
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
    assert set(theory.PROVED) <= set(PROTOCOLS)
    assert set(theory.orders(theory.network(graphs.cycle(4)), ALIKE, 10)) <= set(theory.PROVED)
