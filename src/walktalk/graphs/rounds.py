"""Graphs that change by round: who meets whom, as a pure function of the round's number, the same at every node.

A topology of this kind is a `Graph` of all edges that are ever used, with a `Rounds` beside it. Protocols that go by
rounds ask `Surroundings.meets`; for all others it is the graph of all edges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

from walktalk.graphs.checks import at_least
from walktalk.graphs.complete import complete
from walktalk.graphs.graph import Graph
from walktalk.seeds import Seed, as_seed


class Rounds(ABC):
    """Who sends to whom in which round."""

    @abstractmethod
    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        """Those that a node can send to in this round."""

    @abstractmethod
    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        """Those that can send to a node in this round."""


@dataclass(frozen=True)
class Shifts(Rounds):
    """In round t node i sends to i + shifts[t mod k], all numbers modulo the number of nodes."""

    nodes: int
    shifts: tuple[int, ...]

    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        return ((node + self.shifts[round_ % len(self.shifts)]) % self.nodes,)

    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        return ((node - self.shifts[round_ % len(self.shifts)]) % self.nodes,)


@dataclass(frozen=True)
class RandomMatchings(Rounds):
    """In every round nodes meet in pairs, drawn anew from a seed that all share; of an odd number one stays alone."""

    nodes: int
    seed: Seed

    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        partner = _matching(self.nodes, self.seed, round_)[node]
        return (partner,) if partner != node else ()

    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        return self.targets(node, round_)


@lru_cache(maxsize=64)
def _matching(nodes: int, seed: Seed, round_: int) -> tuple[int, ...]:
    """Everybody's partner; oneself, where one stays alone."""
    order = seed.child("matching", round_).numpy().permutation(nodes).tolist()
    partner = list(range(nodes))
    for one, other in zip(order[::2], order[1::2], strict=False):
        partner[one], partner[other] = other, one
    return tuple(partner)


def doublings(nodes: int) -> tuple[int, ...]:
    """1, 2, 4 … below the number of nodes."""
    return tuple(1 << k for k in range((nodes - 1).bit_length()))


def exponential(nodes: int) -> Graph:
    """Directed: node i sends to i + 1, i + 2, i + 4 … (modulo V), log₂ V neighbours each (Ying et al. 2021).

    Args:
        nodes: How many nodes, V.
    """
    shifts = doublings(at_least("exponential", "nodes", nodes, 2))
    arcs = [(i, (i + shift) % nodes) for i in range(nodes) for shift in shifts]
    return Graph.from_arcs(nodes, arcs, f"exponential({nodes})")


def one_peer_exponential(nodes: int) -> Graph:
    """The exponential graph, one neighbour a round: i sends to i + 2^(t mod log₂ V) (Assran et al. 2019; Ying 2021).

    Where V is a power of two, log₂ V rounds of averaging halves give the exact mean.

    Args:
        nodes: How many nodes, V.
    """
    every = exponential(nodes)
    return Graph(
        every.indptr,
        every.indices,
        f"one_peer_exponential({nodes})",
        directed=True,
        rounds=Shifts(nodes, doublings(nodes)),
    )


def random_matchings(nodes: int, seed: int | Seed = 0) -> Graph:
    """Any two may meet; in every round nodes meet in random pairs.

    Args:
        nodes: How many nodes, V.
        seed: Of all pairs of all rounds.
    """
    every = complete(at_least("random_matchings", "nodes", nodes, 2))
    rounds = RandomMatchings(nodes, as_seed(seed))
    return Graph(every.indptr, every.indices, f"random_matchings({nodes})", rounds=rounds)
