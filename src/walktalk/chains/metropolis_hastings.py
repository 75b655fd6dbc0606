"""Metropolis–Hastings: the paper's P (Section 4.1), uniform in the long run on any connected graph.

p_ij = min(1/(d_i + 1), 1/(d_j + 1)) for neighbours i and j; the walk stays put with what is left. The matrix is
symmetric, so it is doubly stochastic, and every node stays put sometimes, so it is never periodic.

With weights L it is p_ij = min(1/(d_i + 1), (L_j / L_i) / (d_j + 1)): in the long run a walk is at a node in proportion
to its weight (Ayache and El Rouayheb 2020), and comes back to it after ΣL / L_v steps on average. Where a node is much
heavier than all around it, it hardly ever leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from walktalk.chains.chain import Chain
from walktalk.errors import ChainError
from walktalk.graphs import GraphLike, as_graph
from walktalk.lazy import later

if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = later("scipy.sparse")


def metropolis_hastings(graph: GraphLike, weights: Sequence[float] | None = None) -> Chain:
    """The chain as a sparse matrix; a node without neighbours stays where it is.

    Args:
        graph: The graph that walks move on.
        weights: How often it is to be at each node, in proportion; left out: equally often.
    """
    graph = as_graph(graph)
    degrees = graph.degrees
    here, there = np.repeat(degrees, degrees) + 1.0, degrees[graph.indices] + 1.0
    if weights is not None:
        heavy = _checked(weights, graph.nodes)
        there = there * np.repeat(heavy, degrees) / heavy[graph.indices]
    chances, shape = 1.0 / np.maximum(here, there), (graph.nodes, graph.nodes)
    moves = sparse.csr_array((chances, graph.indices, graph.indptr), shape=shape)
    stay = 1.0 - np.asarray(moves.sum(axis=1))
    kind = "metropolis_hastings" if weights is None else "weighted_metropolis_hastings"
    return Chain(sparse.csr_array(moves + sparse.diags_array(stay)), f"{kind}({graph.name})")


def _checked(weights: Sequence[float], nodes: int) -> npt.NDArray[np.float64]:
    heavy = np.asarray(weights, dtype=np.float64)
    if heavy.shape != (nodes,) or not np.isfinite(heavy).all() or not (heavy > 0).all():
        raise ChainError(f"weights: {nodes} numbers above 0 are needed, one for each node")
    return heavy


def metropolis_step(
    node: int,
    degree: int,
    neighbours: Sequence[int],
    neighbour_degrees: Sequence[int],
    random: Random,
    ratios: Sequence[float] | None = None,
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
        ratios: weights of the neighbours, in the same order, over that of the node; left out: all have the same.
    """
    size = degree + 1
    x = random.random() * size
    proposal = int(x)
    if proposal >= len(neighbours):
        return node
    most = size if ratios is None else size * ratios[proposal]
    return node if (x - proposal) * (neighbour_degrees[proposal] + 1) >= most else neighbours[proposal]
