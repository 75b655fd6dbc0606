"""Return and hitting times: closed forms, the paper's recursion, simulated walks, and large graphs."""

from __future__ import annotations

import sys

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array

from walktalk import chains, graphs
from walktalk.chains import Chain
from walktalk.core.errors import ChainError
from walktalk.graphs import Graph

SIZES = [*range(3, 31), 49, 50, 99, 100, 151, 199, 200]


@pytest.fixture
def sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["walktalk.chains.spectrum"], "DENSE_TIMES", 1)


def moment(graph: Graph, node: int = 0) -> float:
    return chains.return_time(chains.metropolis_hastings(graph), node).second_moment


@pytest.mark.parametrize("n", SIZES)
def test_complete_graph(n: int) -> None:
    assert moment(graphs.complete(n)) == pytest.approx(2 * n**2 - n, rel=1e-9)


@pytest.mark.parametrize("n", SIZES)
def test_cycle(n: int) -> None:
    assert moment(graphs.cycle(n)) == pytest.approx(n * (n**2 + 1) / 2, rel=1e-9)


def first_and_second(matrix: np.ndarray) -> tuple[float, float]:
    """Appendix E for any chain, first step by first step: m_i = 1 + Σ p_ij m_j, M_i = 1 + Σ p_ij (2 m_j + M_j)."""
    away = matrix.copy()
    away[:, 0] = 0  # reaching node 0 ends the journey
    n = len(matrix)
    m = np.linalg.solve(np.eye(n) - away, np.ones(n))
    second = np.linalg.solve(np.eye(n) - away, 1 + 2 * away @ m)
    return float(m[0]), float(second[0])


GRAPHS = [
    graphs.path(2),
    graphs.path(9),
    graphs.star(8),
    graphs.barbell(11),
    graphs.torus(4, 5),
    graphs.hypercube(4),
    graphs.erdos_renyi(20, 0.3, 1),
    graphs.small_world(24, 4, 0.2, 1),
    graphs.us_five_sites(),
    *(graphs.cycle(n) for n in (5, 20, 101)),
    *(graphs.complete(n) for n in (4, 20, 101)),
]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_the_papers_linear_system(graph: Graph) -> None:
    chain = chains.metropolis_hastings(graph)
    mean, second = first_and_second(chain.matrix.toarray())
    found = chains.return_time(chain, 0)
    assert found.mean == pytest.approx(mean) == pytest.approx(graph.nodes)
    assert found.second_moment == pytest.approx(second)
    assert found.h**2 == pytest.approx(second)
    assert chains.second_moments(chain)[0] == pytest.approx(second)


@pytest.mark.usefixtures("sparse")
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_sparse_methods_agree(graph: Graph) -> None:
    chain = chains.metropolis_hastings(graph)
    dense = chain.matrix.toarray()
    assert chains.return_time(chain, 0).second_moment == pytest.approx(first_and_second(dense)[1], rel=1e-9)
    target = graph.nodes // 2
    others = np.delete(np.arange(graph.nodes), target)
    expected = np.zeros(graph.nodes)
    expected[others] = np.linalg.solve(np.eye(len(others)) - dense[np.ix_(others, others)], np.ones(len(others)))
    assert np.allclose(chains.hitting_times(chain, target), expected, rtol=1e-6)


def test_an_irregular_walk_returns_by_its_stationary_probability() -> None:
    chain = chains.simple_walk(graphs.star(6))  # hub at 0, π = 1/2: it returns in two steps exactly
    assert chains.return_time(chain, 0) == chains.ReturnTime(0, pytest.approx(2), pytest.approx(4))
    leaf = chains.return_time(chain, 3)
    assert leaf.mean == pytest.approx(10)
    assert leaf.deviation > 0
    rotation = Chain(csr_array(np.roll(np.eye(4), 1, axis=1)))
    assert chains.return_time(rotation, 2).second_moment == pytest.approx(16)


def test_one_node() -> None:
    assert chains.return_time(chains.metropolis_hastings(graphs.cycle(1))) == chains.ReturnTime(0, 1.0, 1.0)


@pytest.mark.parametrize(
    "graph",
    [
        graphs.cycle(3),
        graphs.cycle(20),
        graphs.complete(20),
        graphs.torus(4),
        graphs.erdos_renyi(30, 0.3, 2),
        graphs.cycle(41),
    ],
    ids=lambda graph: graph.name,
)
def test_simulated_walks_within_99_percent(graph: Graph) -> None:
    walks, rng = 20_000, np.random.default_rng(graph.nodes)
    chain = chains.metropolis_hastings(graph)
    sampler = chain.sampler()
    at, steps = np.zeros(walks, dtype=np.int64), np.zeros(walks)
    open_ = np.arange(walks)
    while len(open_):
        at[open_] = sampler.next_many(at[open_], rng)
        steps[open_] += 1
        open_ = open_[at[open_] != 0]
    expected = chains.return_time(chain, 0)
    for sample, value in ((steps, expected.mean), (steps**2, expected.second_moment)):
        assert abs(sample.mean() - value) < 2.576 * sample.std() / np.sqrt(walks)


@pytest.mark.parametrize("graph", [graphs.cycle(12), graphs.complete(12)], ids=lambda graph: graph.name)
def test_the_age_of_the_last_visit(graph: Graph) -> None:
    chain = chains.metropolis_hastings(graph)
    sampler, rng = chain.sampler(), np.random.default_rng(1)
    at, age, seen = np.zeros(2000, dtype=np.int64), np.zeros(2000), []
    for step in range(1500):
        at = sampler.next_many(at, rng)
        age = np.where(at == 0, 0, age + 1)
        if step > 500:
            seen.append(age.mean())
    assert np.mean(seen) == pytest.approx(chains.return_time(chain).mean_age, rel=0.03)
    assert chains.return_time(chains.metropolis_hastings(graphs.cycle(20))).mean_age == pytest.approx(399 / 4)


def torus_moment(rows: int, cols: int) -> float:
    """V(2 Σ 1/(1 − λ) + 1): on a vertex-transitive graph L⁺_vv is the mean of its eigenvalues."""
    half = [np.sin(np.pi * np.arange(side) / side) ** 2 for side in (rows, cols)]
    gaps = 4 / 5 * (half[0][:, None] + half[1]).ravel()[1:]
    return float(rows * cols * (2 * (1 / gaps).sum() + 1))


@pytest.mark.parametrize("side", [3, 8, 20, 60])
def test_torus(side: int) -> None:
    assert moment(graphs.torus(side)) == pytest.approx(torus_moment(side, side), rel=1e-9)


def test_the_torus_grows_as_v_squared_log_v() -> None:
    """The entry that Table 2 leaves open: H²/(V² ln V) settles, while H²/V² keeps growing."""
    sizes = np.array([64**2, 128**2, 256**2, 512**2])
    moments = np.array([torus_moment(int(v**0.5), int(v**0.5)) for v in sizes])
    slopes = np.diff(moments / sizes**2) / np.diff(np.log(sizes))
    assert np.allclose(slopes, 5 / (2 * np.pi), rtol=1e-3)  # 2 · (1/4π) · 5: the lattice Green function


@pytest.mark.parametrize(
    ("graph", "exact"),
    [(graphs.cycle(30_000), 30_000 * (30_000**2 + 1) / 2), (graphs.torus(100, 120), torus_moment(100, 120))],
)
def test_large_graphs_to_many_digits(graph: Graph, exact: float) -> None:
    assert moment(graph) == pytest.approx(exact, rel=1e-9)


def test_hitting_times_on_a_large_cycle() -> None:
    n = 5001
    k = np.arange(n)
    assert np.allclose(chains.hitting_times(chains.metropolis_hastings(graphs.cycle(n))), 1.5 * k * (n - k), rtol=1e-6)


def test_the_middle_of_a_path_is_the_best_aggregator() -> None:
    found = chains.aggregators(chains.metropolis_hastings(graphs.path(31)))
    assert found.best.node == 15
    assert found.worst.node in (0, 30)
    assert found.exact


@pytest.mark.parametrize(
    "graph",
    [graphs.path(2001), graphs.from_networkx(nx.barabasi_albert_graph(2000, 2, seed=1)), graphs.barbell(1601)],
    ids=lambda graph: graph.name,
)
def test_aggregators_of_a_large_graph_are_nearly_the_best_and_worst(graph: Graph) -> None:
    chain = chains.metropolis_hastings(graph)
    moments = chains.second_moments(chain)
    found = chains.aggregators(chain)
    assert not found.exact
    assert found.best.second_moment == pytest.approx(moments[found.best.node], rel=1e-6)
    assert found.best.second_moment <= moments.min() * 1.1
    assert found.worst.second_moment >= moments.max() * 0.9


@pytest.mark.parametrize("node", [-1, 5])
def test_the_node_must_exist(node: int) -> None:
    chain = chains.metropolis_hastings(graphs.cycle(5))
    for function in (chains.return_time, chains.hitting_times):
        with pytest.raises(ChainError, match=f"node {node} is not there; nodes are 0 to 4"):
            function(chain, node)


def test_a_reducible_chain_is_an_error() -> None:
    chain = chains.metropolis_hastings(graphs.cycle(6).without([0, 3]))
    with pytest.raises(ChainError, match="not irreducible"):
        chains.return_time(chain, 1)
    with pytest.raises(ChainError, match="not irreducible"):
        chains.hitting_times(chain, 1)


@pytest.mark.parametrize("nodes", [6, 20, 50])
def test_hitting_a_node_of_the_cycle_takes_longer_than_returning(nodes):
    """Appendix E's m₁ is 3V/2 − 3/2, and no return time bounds a hitting time, as the proof of Theorem 3 has it."""
    chain = chains.metropolis_hastings(graphs.cycle(nodes))
    times = chains.hitting_times(chain)
    assert times[1] == pytest.approx(1.5 * nodes - 1.5)
    assert times.max() == pytest.approx(3 / 8 * nodes**2)
    returned = chains.return_time(chain)
    assert times.max() > returned.mean
    assert times.max() ** 2 > returned.second_moment
