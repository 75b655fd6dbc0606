"""Small worlds (Watts and Strogatz, 1998): a ring of near neighbours, with a share of the edges rewired to far ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from annotated_types import Ge, Le

from walktalk.errors import GraphError
from walktalk.graphs.checks import at_least, probability, until_connected
from walktalk.graphs.graph import Graph
from walktalk.lazy import later
from walktalk.seeds import Seed

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = later("networkx")


def small_world(
    nodes: int, degree: Annotated[int, Ge(0)] = 4, rewire: Annotated[float, Ge(0), Le(1)] = 0.1, seed: int | Seed = 0
) -> Graph:
    """A ring of near neighbours with some edges rewired (Watts–Strogatz).

    Args:
        nodes: how many nodes, V.
        degree: near neighbours of each node, even.
        rewire: the share of the edges that are rewired.
        seed: of the sample.
    """
    n = at_least("small_world", "nodes", nodes, 1)
    degree = at_least("small_world", "degree", degree, 0)
    rewire = probability("small_world", "rewire", rewire)
    if degree % 2 or degree >= n:
        raise GraphError(f"small_world: degree = {degree}, but it must be even and less than nodes = {n}")
    name = f"small_world({n}, degree={degree}, rewire={rewire:g})"

    def sample(seed: Seed) -> Graph:
        graph = nx.watts_strogatz_graph(n, degree, rewire, seed=seed.integer)
        return Graph.from_edges(n, np.array(graph.edges, dtype=np.int64), name)

    return until_connected(sample, seed, "take a larger degree or rewire less")
