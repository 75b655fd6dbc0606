"""The path: a cycle with one edge cut, the largest diameter there is."""

from __future__ import annotations

import numpy as np

from walktalk.graphs.checks import at_least
from walktalk.graphs.graph import Graph


def path(n: int) -> Graph:
    """n nodes in a row.

    Args:
        n: How many nodes.
    """
    n = at_least("path", "nodes", n, 1)
    nodes = np.arange(n - 1, dtype=np.int64)
    return Graph.from_edges(n, np.stack([nodes, nodes + 1], axis=1), f"path({n})")
