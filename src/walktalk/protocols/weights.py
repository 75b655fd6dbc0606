"""The weights that neighbours mix with: p_ij of the Metropolis–Hastings matrix (Section 4.1), the same on both sides.

They are those of the whole graph, whoever is alive: both sides of an exchange know them without asking. The weight of
one that does not come stays with the node itself, so rows still sum to one, and so do columns where both leave each
other out.
"""

from __future__ import annotations

from collections.abc import Collection

from walktalk.protocols.machine import Surroundings


def weight(around: Surroundings, peer: int) -> float:
    """For one neighbour."""
    degree = around.degrees[around.neighbours.index(peer)]
    return 1.0 / (max(len(around.neighbours), degree) + 1)


def weights(around: Surroundings, there: Collection[int]) -> dict[int, float]:
    """For those neighbours that are there, in the order of the graph."""
    own = len(around.neighbours)
    everyone = zip(around.neighbours, around.degrees, strict=True)
    return {peer: 1.0 / (max(own, degree) + 1) for peer, degree in everyone if peer in there}
