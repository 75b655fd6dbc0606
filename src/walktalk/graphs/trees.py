"""Trees: the binary one, two of them at once, and one that spans any graph."""

from __future__ import annotations

from functools import lru_cache
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


def two_binary_trees(nodes: int) -> Graph:
    """All links of two binary trees in which nobody has more than four neighbours in all (Vogels et al. 2021).

    In the first, node 0 hangs on node 1, the root, and node v > 1 on v/2; the second is the first with the nodes in the
    opposite order. Whoever has children in one is a leaf of the other, but for the middle one of an odd number.

    Args:
        nodes: How many nodes, V.
    """
    n = at_least("two_binary_trees", "nodes", nodes, 2)
    edges = np.concatenate([tree.edge_list() for tree in pair_of_trees(n)])
    return Graph.from_edges(n, edges, f"two_binary_trees({n})")


@lru_cache(maxsize=8)  # every node asks for the same two
def pair_of_trees(nodes: int) -> tuple[Graph, Graph]:
    """The two trees of `two_binary_trees`, one by one."""
    children = np.arange(1, nodes, dtype=np.int64)
    edges = np.stack([children // 2, children], axis=1)
    first, second = (Graph.from_edges(nodes, one, "tree") for one in (edges, nodes - 1 - edges))
    return first, second


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
