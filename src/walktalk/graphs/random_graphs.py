"""Erdős–Rényi G(n, p): every pair is an edge with probability p. The paper's experiments take n = 20, p = 0.3."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Le

from walktalk.core.arrays import Ints
from walktalk.core.errors import GraphError
from walktalk.core.lazy import later
from walktalk.core.seeds import Seed
from walktalk.graphs.classic import at_least, probability, until_connected
from walktalk.graphs.graph import Graph


def erdos_renyi(nodes: int, p: Annotated[float, Ge(0), Le(1)] = 0.3, seed: int | Seed = 0) -> Graph:
    """Every pair is an edge with probability p; drawn again until connected, and the graph's notes say how often.

    Args:
        nodes: how many nodes, V.
        p: the probability of an edge.
        seed: of the sample.
    """
    n = at_least("erdos_renyi", "nodes", nodes, 1)
    p = probability("erdos_renyi", "p", p)
    name = f"erdos_renyi({n}, p={p:g})"
    hint = f"p should be above ln(n)/n = {log(max(n, 2)) / n:.2g}"
    return until_connected(lambda s: Graph.from_edges(n, _pairs(_chosen(n * (n - 1) // 2, p, s)), name), seed, hint)


def _chosen(pairs: int, p: float, seed: Seed) -> Ints:
    """Which of so many pairs are edges: the gaps between them are geometric (Batagelj and Brandes, 2005)."""
    if p == 0 or pairs == 0:
        return np.zeros(0, dtype=np.int64)
    rng, found, last = seed.numpy(), [], -1
    while last < pairs:
        expected = (pairs - last) * p
        gaps = rng.geometric(p, size=int(expected + 4 * np.sqrt(expected) + 8))
        places = last + np.cumsum(np.minimum(gaps, pairs + 1))
        found.append(places)
        last = int(places[-1])
    chosen = np.concatenate(found)
    return chosen[chosen < pairs]


def _pairs(chosen: Ints) -> Ints:
    """Pair number k is (k − b(b − 1)/2, b), with b the largest such that b(b − 1)/2 ≤ k."""
    b = ((1 + np.sqrt(1 + 8 * chosen.astype(np.float64))) / 2).astype(np.int64)
    b -= b * (b - 1) // 2 > chosen  # the square root may round up
    b += (b + 1) * b // 2 <= chosen  # or down
    return np.stack([chosen - b * (b - 1) // 2, b], axis=1)


# Random regular graphs: all degrees equal, otherwise as random as can be. Expanders: p = Θ(1) whatever V.
#
# Each node gets `degree` stubs, the stubs are paired at random, and pairs that make a loop or a parallel edge are
# paired anew together with a few good ones (the configuration model with repair). For sparse graphs there are about
# degree²/4 such pairs whatever n, so a million nodes take about a second. Small graphs, where that could run long, are
# left to networkx (Steger and Wormald, 1999).

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = later("networkx")

SMALL = 20_000  # stubs; below this networkx takes milliseconds


def random_regular(nodes: int, degree: Annotated[int, Ge(0)] = 4, seed: int | Seed = 0) -> Graph:
    """Random, connected, with the same number of neighbours everywhere.

    Args:
        nodes: how many nodes, V.
        degree: neighbours of each node; nodes × degree is even.
        seed: of the sample.
    """
    n = at_least("random_regular", "nodes", nodes, 1)
    degree = at_least("random_regular", "degree", degree, 0)
    if degree >= n:
        raise GraphError(f"random_regular: degree = {degree}, but it must be less than nodes = {n}")
    if n * degree % 2:
        raise GraphError(f"random_regular: degree = {degree} and nodes = {n} are both odd; one of them must be even")
    name = f"random_regular({n}, degree={degree})"
    hint = "degree should be 3 or more"
    return until_connected(lambda s: Graph.from_edges(n, _edges(n, degree, s), name), seed, hint)


def _edges(n: int, degree: int, seed: Seed) -> Ints:
    if n * degree <= SMALL or degree > n // 8:
        graph = nx.random_regular_graph(degree, n, seed=seed.integer)
        return np.array(graph.edges, dtype=np.int64).reshape(-1, 2)
    rng = seed.numpy()
    stubs = rng.permutation(np.repeat(np.arange(n, dtype=np.int64), degree)).reshape(-1, 2)
    while True:
        bad = _bad(stubs, n)
        if not len(bad):
            return stubs
        others = rng.choice(len(stubs), size=min(len(stubs), 4 * len(bad)), replace=False)
        again = np.union1d(bad, others)
        stubs[again] = rng.permutation(stubs[again].ravel()).reshape(-1, 2)


def _bad(pairs: Ints, n: int) -> Ints:
    """The places of loops and of all but the first of equal pairs."""
    keys = pairs.min(axis=1) * n + pairs.max(axis=1)
    _, first = np.unique(keys, return_index=True)
    bad = pairs[:, 0] == pairs[:, 1]
    repeated = np.ones(len(pairs), dtype=bool)
    repeated[first] = False
    return np.flatnonzero(bad | repeated)


# Small worlds (Watts and Strogatz, 1998): a ring of near neighbours, with a share of the edges rewired to far ones.

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = later("networkx")


def small_world(
    nodes: int, degree: Annotated[int, Ge(0)] = 4, rewire: Annotated[float, Ge(0), Le(1)] = 0.1, seed: int | Seed = 0
) -> Graph:
    """A ring of near neighbours with some edges rewired (Watts–Strogatz).

    Args:
        nodes: how many nodes, V.
        degree: near neighbours of each node, even.
        rewire: the share of the edges that are rewired.
        seed: of the sample.
    """
    n = at_least("small_world", "nodes", nodes, 1)
    degree = at_least("small_world", "degree", degree, 0)
    rewire = probability("small_world", "rewire", rewire)
    if degree % 2 or degree >= n:
        raise GraphError(f"small_world: degree = {degree}, but it must be even and less than nodes = {n}")
    name = f"small_world({n}, degree={degree}, rewire={rewire:g})"

    def sample(seed: Seed) -> Graph:
        graph = nx.watts_strogatz_graph(n, degree, rewire, seed=seed.integer)
        return Graph.from_edges(n, np.array(graph.edges, dtype=np.int64), name)

    return until_connected(sample, seed, "take a larger degree or rewire less")
