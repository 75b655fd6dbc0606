"""Trees: the binary one, and one that spans any graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from walktalk.graphs.checks import at_least
from walktalk.graphs.graph import Graph, GraphLike, as_graph
from walktalk.lazy import later

if TYPE_CHECKING:
    from scipy.sparse import csgraph
else:
    csgraph = later("scipy.sparse.csgraph")


def binary_tree(nodes: int) -> Graph:
    """Node 0 is the root; node v has the children 2v + 1 and 2v + 2.

    Args:
        nodes: How many nodes, V.
    """
    n = at_least("binary_tree", "nodes", nodes, 1)
    children = np.arange(1, n, dtype=np.int64)
    return Graph.from_edges(n, np.stack([(children - 1) // 2, children], axis=1), f"binary_tree({n})")


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
