"""Chains: the matrices, Assumption 4, and sampling that follows the matrix."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import chisquare

from walktalk import chains, graphs
from walktalk.chains import Chain
from walktalk.core.errors import ChainError
from walktalk.graphs import Graph

random_graphs = st.builds(
    lambda n, p, seed: graphs.erdos_renyi(n, max(p, 0.35), seed),
    st.integers(1, 25),
    st.floats(0, 1),
    st.integers(0, 99),
)


@given(random_graphs)
@settings(deadline=None)
def test_metropolis_hastings_is_the_formula(graph: Graph) -> None:
    matrix = chains.metropolis_hastings(graph).check().matrix.toarray()
    degrees = graph.degrees
    for i in range(graph.nodes):
        for j in graph.neighbours(i):
            assert matrix[i, j] == pytest.approx(min(1 / (degrees[i] + 1), 1 / (degrees[j] + 1)))
    assert np.allclose(matrix, matrix.T, atol=0)
    assert np.allclose(matrix.sum(axis=1), 1)
    assert (matrix.diagonal() > 0).all()


def test_nonzeros_with_and_without_the_diagonal() -> None:
    chain = chains.metropolis_hastings(graphs.cycle(20))
    assert (chain.nonzeros(), chain.nonzeros(diagonal=False)) == (60, 40)
    assert chain.move_probability() == pytest.approx(2 / 3)
    assert chains.metropolis_hastings(graphs.complete(20)).nonzeros() == 400


def test_a_dead_node_stays_put() -> None:
    matrix = chains.metropolis_hastings(graphs.complete(4).without([2])).matrix.toarray()
    assert matrix[2, 2] == 1
    assert matrix[0, 1] == pytest.approx(1 / 3)
    assert chains.simple_walk(graphs.complete(4).without([2])).matrix.toarray()[2, 2] == 1


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        (chains.simple_walk(graphs.star(5)), "not doubly stochastic, column 0 sums to 4"),
        (chains.simple_walk(graphs.cycle(6)), "periodic, with period 2"),
        (chains.metropolis_hastings(graphs.cycle(6).without([0, 3])), "not irreducible, 4 classes"),
        (Chain(csr_array(np.array([[1.5, -0.5], [-0.5, 1.5]]))), "negative"),
        (Chain(csr_array(np.array([[0.6, 0.4], [0.4, 0.5]]))), "row 1 sums to 0.9"),
        (Chain(csr_array(np.roll(np.eye(3), 1, axis=1))), "period 3"),
    ],
)
def test_assumption_4_is_checked(chain: Chain, message: str) -> None:
    with pytest.raises(ChainError, match=message):
        chain.check()


def test_a_chain_is_square() -> None:
    with pytest.raises(ChainError, match="2 rows and 3 columns"):
        Chain(csr_array(np.ones((2, 3))))


def test_an_odd_cycle_is_aperiodic_without_laziness() -> None:
    chains.simple_walk(graphs.cycle(7)).check()


def fits(draw: Callable[[], int], expected: np.ndarray, draws: int = 20_000) -> bool:
    """A chi-square test at one in a hundred thousand: deterministic seeds, so no flakes."""
    counts = np.bincount([draw() for _ in range(draws)], minlength=len(expected))
    possible = expected > 0
    assert counts[~possible].sum() == 0
    if possible.sum() == 1:
        return True
    return bool(chisquare(counts[possible], expected[possible] * draws).pvalue > 1e-5)


@pytest.mark.parametrize("graph", [graphs.star(6), graphs.cycle(5), graphs.cycle(1), graphs.erdos_renyi(12, seed=4)])
@pytest.mark.parametrize("kind", [chains.metropolis_hastings, chains.simple_walk])
def test_sampling_follows_the_matrix(graph: Graph, kind: Callable[[Graph], Chain]) -> None:
    chain = kind(graph)
    sampler, random, rng = chain.sampler(), Random(5), np.random.default_rng(5)
    dense = chain.matrix.toarray()
    for node in range(min(graph.nodes, 4)):
        assert fits(lambda node=node: sampler.next(node, random), dense[node])
        many = iter(sampler.next_many(np.full(20_000, node), rng).tolist())
        assert fits(lambda many=many: next(many), dense[node])


def test_uneven_rows_are_sampled_exactly() -> None:
    row = np.array([0.001, 0.5, 0.009, 0.19, 0.3])
    sampler, random = Chain(csr_array(np.tile(row, (5, 1)))).sampler(), Random(1)
    assert fits(lambda: sampler.next(2, random), row, 100_000)


@pytest.mark.parametrize("graph", [graphs.star(6), graphs.barbell(9), graphs.erdos_renyi(12, seed=4), graphs.cycle(1)])
def test_the_local_rule_is_the_matrix(graph: Graph) -> None:
    dense = chains.metropolis_hastings(graph).matrix.toarray()
    degrees = graph.degrees.tolist()
    for node in range(graph.nodes):
        random, near = Random(node), graph.neighbours(node)
        far = [degrees[v] for v in near]
        assert fits(lambda: chains.metropolis_step(node, len(near), near, far, random), dense[node])  # noqa: B023


def test_the_local_rule_exactly_on_a_fine_grid() -> None:
    """With the random number on a grid, the frequencies are the probabilities themselves."""

    class Grid(Random):
        x = 0.0

        def random(self) -> float:
            return self.x

    graph = graphs.barbell(7)
    degrees, dense, grid, points = graph.degrees.tolist(), None, Grid(), 12_000
    dense = chains.metropolis_hastings(graph).matrix.toarray()
    for node in range(graph.nodes):
        near = graph.neighbours(node)
        seen = np.zeros(graph.nodes)
        for k in range(points):
            grid.x = (k + 0.5) / points
            seen[chains.metropolis_step(node, len(near), near, [degrees[v] for v in near], grid)] += 1
        assert np.allclose(seen / points, dense[node], atol=2e-3)


def test_the_local_rule_with_a_dead_neighbour_stays_put() -> None:
    random = Random(0)
    seen = {chains.metropolis_step(7, 2, (8,), (2,), random) for _ in range(200)}
    assert seen == {7, 8}


def test_many_walks_on_a_large_graph_stay_on_edges() -> None:
    graph = graphs.torus(300)
    chain, rng = chains.metropolis_hastings(graph), np.random.default_rng(0)
    at = rng.integers(0, graph.nodes, 50_000)
    to = chain.sampler().next_many(at, rng)
    assert (np.asarray(chain.matrix[at, to]).ravel() > 0).all()
    assert abs((to == at).mean() - 0.2) < 0.01
