"""The weights that neighbours mix with: p_ij of the Metropolis–Hastings matrix (Section 4.1), the same on both sides.

They are those of the whole graph, whoever is alive: both sides of an exchange know them without asking. The weight of
one that does not come stays with the node itself, so rows still sum to one, and so do columns where both leave each
other out.
"""

from __future__ import annotations

from collections.abc import Collection

from walktalk.graphs import WeightedRounds
from walktalk.protocols.machine import NetworkView


def weight(around: NetworkView, peer: int) -> float:
    """The Metropolis–Hastings weight of one neighbour."""
    degree = around.degrees[around.neighbours.index(peer)]
    return 1.0 / (max(len(around.neighbours), degree) + 1)


def weights(around: NetworkView, there: Collection[int]) -> dict[int, float]:
    """The weights of those neighbours that are there, in the order of the graph."""
    own = len(around.neighbours)
    everyone = zip(around.neighbours, around.degrees, strict=True)
    return {peer: 1.0 / (max(own, degree) + 1) for peer, degree in everyone if peer in there}


def row_of(around: NetworkView, round_: int) -> dict[int, float]:
    """The row of W in a round: for everybody whom the node hears; the rest is its own.

    On a fixed graph and on one that changes those of Metropolis and Hastings, unless the rounds have weights of their
    own; with one-way links, equal shares.
    """
    rounds, node = around.rounds, around.node
    if rounds is None:
        equal = 1.0 / (len(around.sources) + 1)
        return weights(around, around.neighbours) if around.heard is None else dict.fromkeys(around.heard, equal)
    sources = rounds.sources(node, round_)
    if isinstance(rounds, WeightedRounds):
        return {peer: rounds.weight(node, peer, round_) for peer in sources}
    return {peer: 1.0 / (max(len(sources), len(rounds.sources(peer, round_))) + 1) for peer in sources}
