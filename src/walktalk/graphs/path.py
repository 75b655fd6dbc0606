"""The path: a cycle with one edge cut, the largest diameter there is."""

from __future__ import annotations

import numpy as np

from walktalk.graphs.checks import at_least
from walktalk.graphs.graph import Graph


def path(nodes: int) -> Graph:
    """A row: a ring that is cut.

    Args:
        nodes: How many nodes, V.
    """
    n = at_least("path", "nodes", nodes, 1)
    first = np.arange(n - 1, dtype=np.int64)
    return Graph.from_edges(n, np.stack([first, first + 1], axis=1), f"path({n})")
