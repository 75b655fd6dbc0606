"""The simple random walk: a neighbour drawn uniformly. Uniform in the long run only if all degrees are equal, and
periodic on bipartite graphs (an even cycle), so it breaks Assumption 4 on most graphs: `check` says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from walktalk.chains.chain import Chain
from walktalk.graphs import GraphLike, as_graph
from walktalk.lazy import later

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = later("scipy.sparse")


def simple_walk(graph: GraphLike) -> Chain:
    """The chain as a sparse matrix; a node without neighbours stays where it is.

    Args:
        graph: a `Graph`, or one of networkx.
    """
    graph = as_graph(graph)
    degrees = graph.degrees
    chance = 1.0 / np.repeat(degrees, degrees)
    moves = sparse.csr_array((chance, graph.indices, graph.indptr), shape=(graph.nodes, graph.nodes))
    alone = (degrees == 0).astype(np.float64)
    matrix = sparse.csr_array(moves + sparse.diags_array(alone)) if alone.any() else moves
    return Chain(matrix, f"simple_walk({graph.name})")
