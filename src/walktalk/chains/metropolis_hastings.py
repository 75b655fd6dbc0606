"""Metropolis–Hastings: the paper's P (Section 4.1), uniform in the long run on any connected graph.

p_ij = min(1/(d_i + 1), 1/(d_j + 1)) for neighbours i and j; the walk stays put with what is left. The matrix is
symmetric, so it is doubly stochastic, and every node stays put sometimes, so it is never periodic.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from walktalk.chains.chain import Chain
from walktalk.graphs import GraphLike, as_graph
from walktalk.lazy import later

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = later("scipy.sparse")


def metropolis_hastings(graph: GraphLike) -> Chain:
    """The chain as a sparse matrix; a node without neighbours stays where it is.

    Args:
        graph: The graph that walks move on.
    """
    graph = as_graph(graph)
    degrees = graph.degrees
    sizes = np.maximum(np.repeat(degrees, degrees), degrees[graph.indices]) + 1
    moves = sparse.csr_array((1.0 / sizes, graph.indices, graph.indptr), shape=(graph.nodes, graph.nodes))
    stay = 1.0 - np.asarray(moves.sum(axis=1))
    return Chain(sparse.csr_array(moves + sparse.diags_array(stay)), f"metropolis_hastings({graph.name})")


def metropolis_step(
    node: int, degree: int, neighbours: Sequence[int], neighbour_degrees: Sequence[int], random: Random
) -> int:
    """The same step as a node takes it, knowing only how many neighbours its neighbours have.

    Propose one of itself and its neighbours, all alike; go to neighbour j with probability min(1, (d_i+1)/(d_j+1)),
    else stay. That is p_ij = 1/(d_i+1) · min(1, (d_i+1)/(d_j+1)), the formula above. One random number a step: its
    whole part proposes, its fraction accepts. A node with a dead neighbour may leave its `degree` as it was and only
    drop the dead one from `neighbours`: it stays put where it would have gone there, and the chain stays symmetric.

    Args:
        node: where the walk is.
        degree: how many neighbours that node has.
        neighbours: the neighbours that it may go to.
        neighbour_degrees: how many neighbours each of those has, in the same order.
        random: where the one random number comes from.
    """
    size = degree + 1
    x = random.random() * size
    proposal = int(x)
    if proposal >= len(neighbours) or (x - proposal) * (neighbour_degrees[proposal] + 1) >= size:
        return node
    return neighbours[proposal]
