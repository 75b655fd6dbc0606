"""The barbell: two complete graphs and one edge, or one node, between them. The classic bottleneck: slow to mix."""

from __future__ import annotations

import numpy as np

from walktalk.graphs.checks import at_least
from walktalk.graphs.graph import Graph


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
