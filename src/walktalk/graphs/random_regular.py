"""Random regular graphs: all degrees equal, otherwise as random as can be. Expanders: p = Θ(1) whatever V.

Each node gets `degree` stubs, the stubs are paired at random, and pairs that make a loop or a parallel edge are paired
anew together with a few good ones (the configuration model with repair). For sparse graphs there are about degree²/4
such pairs whatever n, so a million nodes take about a second. Small graphs, where that could run long, are left to
networkx (Steger and Wormald, 1999).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge

from walktalk.errors import GraphError
from walktalk.graphs.checks import at_least, until_connected
from walktalk.graphs.graph import Graph, Ints
from walktalk.lazy import later
from walktalk.seeds import Seed

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
