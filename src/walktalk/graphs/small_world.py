"""Small worlds (Watts and Strogatz, 1998): a ring of near neighbours, with a share of the edges rewired to far ones."""

from __future__ import annotations

import networkx as nx
import numpy as np

from walktalk.errors import GraphError
from walktalk.graphs.checks import at_least, probability, until_connected
from walktalk.graphs.graph import Graph
from walktalk.seeds import Seed


def small_world(n: int, degree: int = 4, rewire: float = 0.1, seed: int | Seed = 0) -> Graph:
    """A ring in which each node knows its `degree` nearest, each edge rewired at random with probability `rewire`.

    Args:
        n: How many nodes.
        degree: Nearest nodes that each knows, an even number.
        rewire: Probability that an edge leads elsewhere.
        seed: Which sample.
    """
    n = at_least("small_world", "nodes", n, 1)
    degree = at_least("small_world", "degree", degree, 0)
    rewire = probability("small_world", "rewire", rewire)
    if degree % 2 or degree >= n:
        raise GraphError(f"small_world: degree = {degree}, but it must be even and less than nodes = {n}")
    name = f"small_world({n}, degree={degree}, rewire={rewire:g})"

    def sample(seed: Seed) -> Graph:
        graph = nx.watts_strogatz_graph(n, degree, rewire, seed=seed.integer)
        return Graph.from_edges(n, np.array(graph.edges, dtype=np.int64), name)

    return until_connected(sample, seed, "take a larger degree or rewire less")
