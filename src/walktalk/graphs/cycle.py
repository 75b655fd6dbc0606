"""The cycle: the paper's graph of largest diameter (Tables 1 and 2), p = Θ(1/V²), H² = V(V² + 1)/2."""

from __future__ import annotations

import numpy as np

from walktalk.graphs.checks import at_least
from walktalk.graphs.graph import Graph


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
