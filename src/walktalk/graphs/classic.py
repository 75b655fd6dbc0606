"""Checks that the families share: each names the key, the value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isqrt, log
from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Le

from walktalk.core.errors import GraphError
from walktalk.core.lazy import later
from walktalk.core.seeds import Seed, as_seed
from walktalk.core.settings import misfit
from walktalk.graphs.graph import Graph, GraphLike, Ints, as_graph

if TYPE_CHECKING:
    from scipy.sparse import csgraph
else:
    csgraph = later("scipy.sparse.csgraph")
if TYPE_CHECKING:
    import networkx as nx
else:
    nx = later("networkx")

TRIES = 100  # samples of a random family before we give up


def at_least(family: str, key: str, value: int, least: int) -> int:
    """The value as an integer, or an error if it is none or too small."""
    if isinstance(value, bool) or int(value) != value or value < least:
        raise misfit(f"{family}: {key}", value, f"a whole number, {least} or more", GraphError)
    return int(value)


def probability(family: str, key: str, value: float) -> float:
    """The value, or an error if it is not between 0 and 1."""
    if not 0 <= value <= 1:
        raise misfit(f"{family}: {key}", value, "a number from 0 to 1", GraphError)
    return float(value)


def until_connected(sample: Callable[[Seed], Graph], seed: int | Seed, hint: str) -> Graph:
    """Samples from child seeds "attempt 0", "attempt 1" … until one is connected, and says how many it took."""
    root = as_seed(seed)
    for attempt in range(TRIES):
        graph = sample(root.child("attempt", attempt))
        if graph.is_connected():
            note = (f"resampled {attempt} times until connected",) if attempt else ()
            return Graph(graph.indptr, graph.indices, graph.name, (*graph.notes, *note))
    raise GraphError(f"{graph.name}: {TRIES} samples in a row were disconnected; {hint}")


# The barbell: two complete graphs and one edge, or one node, between them. The classic bottleneck: slow to mix.


def barbell(nodes: int) -> Graph:
    """Two complete halves, joined by an edge, or by a node in the middle where the number of nodes is odd.

    Args:
        nodes: How many nodes, V.
    """
    n = at_least("barbell", "nodes", nodes, 2)
    half = n // 2
    inside = np.stack(np.triu_indices(half, 1), axis=1).astype(np.int64)
    bridge = np.array([(v, v + 1) for v in range(half - 1, n - half)], dtype=np.int64)
    return Graph.from_edges(n, np.concatenate([inside, inside + n - half, bridge]), f"barbell({n})")


# The complete graph: the paper's graph of smallest diameter (Tables 1 and 2), p = p' = 1, H² = 2V² − V.

LARGEST = 20_000  # nodes; 400 million neighbours, 3 GB


def complete(nodes: int) -> Graph:
    """Every two nodes are neighbours.

    Args:
        nodes: How many nodes, V.
    """
    n = at_least("complete", "nodes", nodes, 1)
    if n > LARGEST:
        raise misfit("complete: nodes", n, f"{LARGEST} or less to fit in memory", GraphError)
    column = np.arange(n - 1, dtype=np.int64)
    indices = column + (column >= np.arange(n, dtype=np.int64)[:, None])  # every column but the diagonal
    return Graph(np.arange(n + 1, dtype=np.int64) * (n - 1), indices.ravel(), f"complete({n})")


# The cycle: the paper's graph of largest diameter (Tables 1 and 2), p = Θ(1/V²), H² = V(V² + 1)/2.


def cycle(nodes: int) -> Graph:
    """A ring. Two nodes are one edge; one node stands alone.

    Args:
        nodes: How many nodes, V.
    """
    n = at_least("cycle", "nodes", nodes, 1)
    name = f"cycle({n})"
    if n < 3:
        return Graph.from_edges(n, [(0, 1)] if n == 2 else [], name)
    every = np.arange(n, dtype=np.int64)
    indices = np.stack([(every - 1) % n, (every + 1) % n], axis=1)
    indices.sort(axis=1)
    return Graph(np.arange(0, 2 * n + 1, 2, dtype=np.int64), indices.ravel(), name)


# The path: a cycle with one edge cut, the largest diameter there is.


def path(nodes: int) -> Graph:
    """A row: a ring that is cut.

    Args:
        nodes: How many nodes, V.
    """
    n = at_least("path", "nodes", nodes, 1)
    first = np.arange(n - 1, dtype=np.int64)
    return Graph.from_edges(n, np.stack([first, first + 1], axis=1), f"path({n})")


# The star: one hub and leaves, the shape of federated learning. Node 0, the default aggregator, is the hub.


def star(nodes: int) -> Graph:
    """Node 0 in the middle, all others its neighbours.

    Args:
        nodes: How many nodes, V.
    """
    n = at_least("star", "nodes", nodes, 1)
    leaves = np.arange(1, n, dtype=np.int64)
    return Graph.from_edges(n, np.stack([np.zeros_like(leaves), leaves], axis=1), f"star({n})")


# The hypercube: nodes are bit strings, neighbours differ in one bit. Diameter log₂ V with log₂ V neighbours.


def hypercube(dimension: int) -> Graph:
    """The cube of this dimension, with 2^dimension nodes.

    Args:
        dimension: Bits of a node's number.
    """
    dimension = at_least("hypercube", "dimension", dimension, 0)
    if dimension > 24:
        raise misfit("hypercube: dimension", dimension, "24 or less (16 million nodes)", GraphError)
    nodes = np.arange(1 << dimension, dtype=np.int64)
    indices = nodes[:, None] ^ (1 << np.arange(dimension, dtype=np.int64))
    indices.sort(axis=1)
    indptr = np.arange(len(nodes) + 1, dtype=np.int64) * dimension
    return Graph(indptr, indices.ravel(), f"hypercube({dimension})")


# The 2-D torus: a grid that wraps around (Tables 1 and 2), p = Θ(1/V).
#
# Its H² is Θ(V² log V); the paper leaves it open.


def torus(rows: int, cols: int | None = None) -> Graph:
    """rows × cols nodes, each with a neighbour to the left, right, above and below, around the edges too.

    A side of 2 gives one edge where two would fall together; a side of 1 gives none.

    Args:
        rows: How many rows.
        cols: How many columns; as many as rows if left out.
    """
    rows = at_least("torus", "rows", rows, 1)
    cols = rows if cols is None else at_least("torus", "cols", cols, 1)
    name = f"torus({rows}, {cols})"
    if rows < 3 or cols < 3:
        return Graph.from_edges(rows * cols, _edges(rows, cols), name)
    row, col = np.divmod(np.arange(rows * cols, dtype=np.int64), cols)
    around = [((row - 1) % rows, col), ((row + 1) % rows, col), (row, (col - 1) % cols), (row, (col + 1) % cols)]
    indices = np.stack([r * cols + c for r, c in around], axis=1)
    indices.sort(axis=1)
    return Graph(np.arange(0, 4 * rows * cols + 1, 4, dtype=np.int64), indices.ravel(), name)


def squarest(nodes: int) -> tuple[int, int]:
    """The two factors of `nodes` that are nearest to each other."""
    rows = next(side for side in range(isqrt(nodes), 0, -1) if nodes % side == 0)
    return rows, nodes // rows


def _edges(rows: int, cols: int) -> list[tuple[int, int]]:
    """Edges of a torus with a short side, loops left out."""
    cells = [(r, c) for r in range(rows) for c in range(cols)]
    down = [(r * cols + c, (r + 1) % rows * cols + c) for r, c in cells]
    right = [(r * cols + c, r * cols + (c + 1) % cols) for r, c in cells]
    return [(a, b) for a, b in down + right if a != b]


# Trees: the binary one, two of them at once, and one that spans any graph.


def binary_tree(nodes: int) -> Graph:
    """Node 0 is the root; node v has the children 2v + 1 and 2v + 2.

    Args:
        nodes: How many nodes, V.
    """
    n = at_least("binary_tree", "nodes", nodes, 1)
    children = np.arange(1, n, dtype=np.int64)
    return Graph.from_edges(n, np.stack([(children - 1) // 2, children], axis=1), f"binary_tree({n})")


def two_binary_trees(nodes: int) -> Graph:
    """All links of two binary trees in which nobody has more than four neighbours in all (Vogels et al. 2021).

    In the first, node 0 hangs on node 1, the root, and node v > 1 on v/2; the second is the first with the nodes in the
    opposite order. Whoever has children in one is a leaf of the other, but for the middle one of an odd number.

    Args:
        nodes: How many nodes, V.
    """
    n = at_least("two_binary_trees", "nodes", nodes, 2)
    edges = np.concatenate([tree.edge_list() for tree in pair_of_trees(n)])
    return Graph.from_edges(n, edges, f"two_binary_trees({n})")


@lru_cache(maxsize=8)  # every node asks for the same two
def pair_of_trees(nodes: int) -> tuple[Graph, Graph]:
    """The two trees of `two_binary_trees`, one by one."""
    children = np.arange(1, nodes, dtype=np.int64)
    edges = np.stack([children // 2, children], axis=1)
    first, second = (Graph.from_edges(nodes, one, "tree") for one in (edges, nodes - 1 - edges))
    return first, second


def spanning_tree(graph: GraphLike, root: int = 0) -> Graph:
    """A tree of a graph's own edges, in which everybody is as near to the root as in the graph.

    Args:
        graph: An undirected graph, ours or networkx's.
        root: The node that the search begins with.
    """
    whole = as_graph(graph).connected()
    order, parents = csgraph.breadth_first_order(whole.adjacency(), root, directed=whole.directed)
    edges = [(int(parents[v]), int(v)) for v in order[1:]]
    return Graph.from_edges(whole.nodes, edges, f"spanning_tree({whole.name})")


# -- Erdős–Rényi G(n, p): every pair is an edge with probability p. The paper's experiments take n = 20, p = 0.3 ------


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
        raise misfit("random_regular: degree", degree, f"less than nodes = {n}", GraphError)
    if n * degree % 2:
        raise GraphError(f"random_regular: degree = {degree} and nodes = {n} are both odd; one of them must be even")
    name = f"random_regular({n}, degree={degree})"
    hint = "degree should be 3 or more"
    return until_connected(lambda s: Graph.from_edges(n, _regular_edges(n, degree, s), name), seed, hint)


def _regular_edges(n: int, degree: int, seed: Seed) -> Ints:
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
        raise misfit("small_world: degree", degree, f"even and less than nodes = {n}", GraphError)
    name = f"small_world({n}, degree={degree}, rewire={rewire:g})"

    def sample(seed: Seed) -> Graph:
        graph = nx.watts_strogatz_graph(n, degree, rewire, seed=seed.integer)
        return Graph.from_edges(n, np.array(graph.edges, dtype=np.int64), name)

    return until_connected(sample, seed, "take a larger degree or rewire less")
