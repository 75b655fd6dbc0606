"""The star: one hub and leaves, the shape of federated learning. Node 0, the default aggregator, is the hub."""

from __future__ import annotations

import numpy as np

from walktalk.graphs.checks import at_least
from walktalk.graphs.graph import Graph


def star(nodes: int) -> Graph:
    """Node 0 in the middle, all others its neighbours.

    Args:
        nodes: How many nodes, V.
    """
    n = at_least("star", "nodes", nodes, 1)
    leaves = np.arange(1, n, dtype=np.int64)
    return Graph.from_edges(n, np.stack([np.zeros_like(leaves), leaves], axis=1), f"star({n})")
