"""The weighted walk and its jumps: where it is in the long run, and whose data count for how much.

A walk whose visits go as π and whose step at v is η s_v follows, in the long run, the gradient of Σ_v π_v s_v f_v. With
s_v = L̄/L_v and π_v = L_v/ΣL that is the mean of all f_v, so the weights change how it goes there and not where to.
Jumps put π off the weights, and without the scale heavy nodes count for more: then it goes elsewhere (`bias`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from walktalk.chains import Chain, metropolis_hastings, metropolis_with_jumps, stationary
from walktalk.errors import SpecError
from walktalk.graphs import GraphLike, as_graph

DENSE = 2000  # nodes; above this the gap is left out


@dataclass(frozen=True)
class WeightedWalkLaw:
    """What is known of a weighted walk on a graph."""

    stationary: tuple[float, ...]  # π: the share of its visits that each node gets
    counts: tuple[float, ...]  # V π_v s_v: for how much of a node each counts in what is minimized; 1 for all: f itself
    gap: float | None  # 1 − the second largest modulus: by that much a step forgets where the walk began
    longest_return: float  # steps on average until it is at the node again that it visits least
    longest_stay: float  # visits in a row, on average, at the node that it gets away from worst
    stays_at: int  # that node

    @property
    def bias(self) -> float:
        """How far from 1 what a node counts for is, at most: 0 where the walk minimizes the mean of all."""
        return max(abs(count - 1.0) for count in self.counts)


def weighted_walk(
    graph: GraphLike,
    weights: Sequence[float],
    jump: float = 0.0,
    jump_end: float = 0.5,
    longest_jump: int = 3,
    scaled: bool = True,
) -> WeightedWalkLaw:
    """The long run of `weighted_walk` with these settings.

    Args:
        graph: The graph that it moves on.
        weights: One for each node, its smoothness L_v.
        jump: p_J, how often it jumps.
        jump_end: p_d, how likely a jump ends after each of its hops.
        longest_jump: r, the most hops of a jump.
        scaled: Whether steps are scaled by the mean weight over the node's.
    """
    graph = as_graph(graph)
    if not 0 <= jump <= 1:
        raise SpecError(f"jump = {jump:g}, but it must be a number from 0 to 1")
    chain = metropolis_hastings(graph, weights)
    if jump:
        chain = metropolis_with_jumps(graph, weights, jump, jump_end, longest_jump)
    law, given = stationary(chain), np.asarray(weights, dtype=np.float64)
    scale = given.mean() / given if scaled else np.ones(graph.nodes)
    stays = np.asarray(chain.matrix.diagonal())
    worst = int(stays.argmax())
    stay = 1.0 / (1.0 - float(stays[worst])) if stays[worst] < 1 else float("inf")
    counts = tuple(map(float, graph.nodes * law * scale))
    return WeightedWalkLaw(tuple(map(float, law)), counts, _gap(chain), float(1.0 / law.min()), stay, worst)


def _gap(chain: Chain) -> float | None:
    if chain.nodes > DENSE:
        return None
    moduli = np.sort(np.abs(np.linalg.eigvals(chain.matrix.toarray())))[::-1]
    return float(1.0 - moduli[1]) if len(moduli) > 1 else 1.0
