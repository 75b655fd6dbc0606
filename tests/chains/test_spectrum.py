"""Spectral gaps against closed forms, dense against sparse, and the large graphs."""

from __future__ import annotations

import resource
import time
from math import cos, pi, sin

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from walktalk import chains, graphs
from walktalk.chains import Chain, spectrum
from walktalk.chains import spectrum as spectrum_function
from walktalk.core.errors import ChainError
from walktalk.graphs import Graph


def of(graph: Graph) -> chains.Spectrum:
    return spectrum(chains.metropolis_hastings(graph))


@pytest.fixture
def sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chains by the methods for large ones."""
    import sys

    monkeypatch.setattr(sys.modules["walktalk.chains.spectrum"], "DENSE", 1)


def cycle_gap(n: int) -> float:
    return 4 / 3 * sin(pi / n) ** 2  # 1 − (1 + 2 cos(2π/V))/3, without the subtraction


def torus_gap(rows: int, cols: int) -> float:
    return 4 / 5 * sin(pi / max(rows, cols)) ** 2


def test_the_papers_numbers_for_twenty_nodes() -> None:
    cycle = of(graphs.cycle(20))
    assert cycle.p_prime == pytest.approx(0.03263, abs=5e-6)
    assert cycle.p == pytest.approx(0.06419, abs=5e-6)
    assert cycle.second == pytest.approx((1 + 2 * cos(2 * pi / 20)) / 3)
    assert cycle.smallest == pytest.approx(-1 / 3)
    complete = of(graphs.complete(20))
    assert complete.p == pytest.approx(1)
    assert complete.p_prime == pytest.approx(1)


@pytest.mark.parametrize("n", [*range(3, 40), 99, 100, 199, 200])
def test_cycle(n: int) -> None:
    found = of(graphs.cycle(n))
    gap = cycle_gap(n)
    assert found.p_prime == pytest.approx(gap, rel=1e-10)
    lowest = (1 + 2 * cos(2 * pi * (n // 2) / n)) / 3
    assert found.smallest == pytest.approx(lowest, abs=1e-12)
    assert found.p == pytest.approx(1 - max(abs(1 - gap), abs(lowest)) ** 2, rel=1e-9)


@pytest.mark.parametrize("graph", [graphs.complete(2), graphs.complete(7), graphs.complete(200), graphs.cycle(1)])
def test_complete_graphs_mix_at_once(graph: Graph) -> None:
    assert (of(graph).p, of(graph).p_prime) == (pytest.approx(1), pytest.approx(1))


@pytest.mark.parametrize("dimension", [2, 3, 6, 9])
def test_hypercube(dimension: int) -> None:
    found = of(graphs.hypercube(dimension))
    assert found.p_prime == pytest.approx(2 / (dimension + 1))
    assert found.smallest == pytest.approx((1 - dimension) / (dimension + 1))


def test_a_negative_eigenvalue_can_decide_p() -> None:
    found = of(graphs.from_networkx(nx.complete_bipartite_graph(9, 9)))  # eigenvalues 1, 1/10, −8/10
    assert found.p_prime == pytest.approx(0.9)
    assert found.p == pytest.approx(0.36)
    assert found.modulus == pytest.approx(0.8)


@pytest.mark.usefixtures("sparse")
@pytest.mark.parametrize(
    "graph",
    [
        graphs.cycle(3),
        graphs.cycle(57),
        graphs.path(300),
        graphs.torus(9, 11),
        graphs.torus(2, 60),
        graphs.complete(30),
        graphs.star(50),
        graphs.barbell(40),
        graphs.barbell(401),
        graphs.hypercube(7),
        graphs.erdos_renyi(300, 0.03, 1),
        graphs.random_regular(500, 4, 1),
        graphs.small_world(400, 4, 0.05, 1),
        graphs.us_five_sites(),
        graphs.from_networkx(nx.complete_bipartite_graph(9, 9)),
        graphs.from_networkx(nx.random_labeled_tree(200, seed=3)),
        graphs.from_networkx(nx.barabasi_albert_graph(200, 2, seed=3)),
    ],
    ids=lambda graph: graph.name,
)
def test_sparse_methods_agree_with_dense_eigenvalues(graph: Graph) -> None:
    chain = chains.metropolis_hastings(graph)
    values = np.linalg.eigvalsh(chain.matrix.toarray())
    found = spectrum(chain)
    assert found.p_prime == pytest.approx(1 - values[-2], rel=1e-6)
    assert found.p == pytest.approx(1 - max(abs(values[-2]), abs(values[0])) ** 2, rel=1e-6)


@pytest.mark.usefixtures("sparse")
@given(st.integers(0, 10_000), st.integers(4, 60), st.floats(0.1, 0.9))
@settings(max_examples=25, deadline=None, suppress_health_check=[])
def test_sparse_methods_on_random_graphs(seed: int, n: int, p: float) -> None:
    chain = chains.metropolis_hastings(graphs.erdos_renyi(n, max(p, 8 / n if n > 8 else 1), seed))
    values = np.linalg.eigvalsh(chain.matrix.toarray())
    assert spectrum(chain).p_prime == pytest.approx(1 - values[-2], rel=1e-6)


@pytest.mark.parametrize(
    ("graph", "gap"), [(graphs.cycle(20_001), cycle_gap(20_001)), (graphs.torus(90, 150), torus_gap(90, 150))]
)
def test_small_gaps_of_large_graphs_to_six_digits(graph: Graph, gap: float) -> None:
    found = of(graph)
    assert found.p_prime == pytest.approx(gap, rel=1e-6)
    assert found.p == pytest.approx(gap * (2 - gap), rel=1e-6)


def test_a_chain_that_is_not_symmetric() -> None:
    matrix = 0.5 * np.eye(5) + 0.5 * np.roll(np.eye(5), 1, axis=1)
    found = spectrum(Chain(csr_array(matrix)))
    assert found.p_prime == pytest.approx(1 - abs(1 + np.exp(2j * pi / 5)) / 2)
    assert found.p == pytest.approx(1 - np.linalg.svd(matrix)[1][1] ** 2)
    big = csr_array((np.full(4000, 0.5), np.arange(4000) // 2 + np.arange(4000) % 2, np.arange(0, 4001, 2)))
    big = csr_array((big.data, big.indices % 2000, big.indptr), shape=(2000, 2000))
    with pytest.raises(ChainError, match="not symmetric"):
        spectrum(Chain(big))


@pytest.mark.parametrize(
    "chain", [chains.simple_walk(graphs.star(5)), chains.metropolis_hastings(graphs.cycle(6).without([0]))]
)
def test_chains_that_break_assumption_4(chain: Chain) -> None:
    with pytest.raises(ChainError):
        spectrum_function(chain)


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["cycle", "torus", "random_regular"])
def test_a_million_nodes(topology: str) -> None:
    chain = chains.metropolis_hastings(graphs.build(topology, 10**6))
    begin = time.process_time()  # of this process: what else runs on a machine is not its fault
    found = spectrum(chain)
    assert time.process_time() - begin < 60
    begin = time.process_time()
    moment = chains.return_time(chain, 0).second_moment
    assert time.process_time() - begin < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 8e6  # kB
    if topology == "cycle":
        assert found.p_prime == pytest.approx(cycle_gap(10**6), rel=1e-6)
        assert moment == pytest.approx(10**6 * (10**12 + 1) / 2, rel=1e-6)
    elif topology == "torus":
        assert found.p_prime == pytest.approx(torus_gap(1000, 1000), rel=1e-6)
        half = np.sin(pi * np.arange(1000) / 1000) ** 2
        gaps = 4 / 5 * (half[:, None] + half).ravel()[1:]
        assert moment == pytest.approx(10**6 * (2 * (1 / gaps).sum() + 1), rel=1e-6)
    else:
        ramanujan = 1 - (1 + 2 * np.sqrt(3)) / 5  # Friedman: random regular graphs are nearly Ramanujan
        assert found.p_prime == pytest.approx(ramanujan, rel=0.01)
