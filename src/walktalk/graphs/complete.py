"""The complete graph: the paper's graph of smallest diameter (Tables 1 and 2), p = p' = 1, H² = 2V² − V."""

from __future__ import annotations

import numpy as np

from walktalk.errors import GraphError
from walktalk.graphs.checks import at_least
from walktalk.graphs.graph import Graph

LARGEST = 20_000  # nodes; 400 million neighbours, 3 GB


def complete(nodes: int) -> Graph:
    """Every two nodes are neighbours.

    Args:
        nodes: How many nodes, V.
    """
    n = at_least("complete", "nodes", nodes, 1)
    if n > LARGEST:
        raise GraphError(f"complete: nodes = {n}, but it must be {LARGEST} or less to fit in memory")
    column = np.arange(n - 1, dtype=np.int64)
    indices = column + (column >= np.arange(n, dtype=np.int64)[:, None])  # every column but the diagonal
    return Graph(np.arange(n + 1, dtype=np.int64) * (n - 1), indices.ravel(), f"complete({n})")
