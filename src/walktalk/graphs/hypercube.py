"""The hypercube: nodes are bit strings, neighbours differ in one bit. Diameter log₂ V with log₂ V neighbours."""

from __future__ import annotations

import numpy as np

from walktalk.errors import GraphError
from walktalk.graphs.checks import at_least
from walktalk.graphs.graph import Graph


def hypercube(dimension: int) -> Graph:
    """The cube of this dimension, with 2^dimension nodes.

    Args:
        dimension: Bits of a node's number.
    """
    dimension = at_least("hypercube", "dimension", dimension, 0)
    if dimension > 24:
        raise GraphError(f"hypercube: dimension = {dimension}, but it must be 24 or less (16 million nodes)")
    nodes = np.arange(1 << dimension, dtype=np.int64)
    indices = nodes[:, None] ^ (1 << np.arange(dimension, dtype=np.int64))
    indices.sort(axis=1)
    indptr = np.arange(len(nodes) + 1, dtype=np.int64) * dimension
    return Graph(indptr, indices.ravel(), f"hypercube({dimension})")
