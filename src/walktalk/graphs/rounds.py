"""Graphs that change by round: who meets whom, as a pure function of the round's number, the same at every node.

A topology of this kind is a `Graph` of all edges that are ever used, with a `Rounds` beside it. Protocols that go by
rounds ask `Surroundings.meets`; for all others it is the graph of all edges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated

from annotated_types import Ge

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


class WeightedRounds(Rounds):
    """Rounds in which weights are not those of Metropolis and Hastings."""

    @abstractmethod
    def weight(self, node: int, source: int, round_: int) -> float:
        """What a node mixes in of one that sends to it in this round; the rest of the row is its own."""


@dataclass(frozen=True)
class Shifts(Rounds):
    """In round t node i sends to i + s for all s in shifts[t mod k], all numbers modulo the number of nodes."""

    nodes: int
    shifts: tuple[tuple[int, ...], ...]

    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        return tuple((node + shift) % self.nodes for shift in self.shifts[round_ % len(self.shifts)])

    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        return tuple((node - shift) % self.nodes for shift in self.shifts[round_ % len(self.shifts)])


class Pairs(Rounds):
    """Rounds in which nodes meet in pairs, and some may stay alone."""

    @abstractmethod
    def partners(self, round_: int) -> tuple[int, ...]:
        """Everybody's partner in this round; oneself, where one stays alone."""

    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        partner = self.partners(round_)[node]
        return (partner,) if partner != node else ()

    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        return self.targets(node, round_)


@dataclass(frozen=True)
class RandomMatchings(Pairs):
    """In every round nodes meet in pairs, drawn anew from a seed that all share; of an odd number one stays alone."""

    nodes: int
    seed: Seed

    def partners(self, round_: int) -> tuple[int, ...]:
        return _matching(self.nodes, self.seed, round_)


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
        rounds=Shifts(nodes, tuple((shift,) for shift in doublings(nodes))),
    )


def k_peer_exponential(nodes: int, peers: Annotated[int, Ge(1)] = 2) -> Graph:
    """With b = peers + 1, node i sends in round t to i + b^t, i + 2 b^t … i + peers · b^t (t modulo log_b V).

    Where V is a power of b, log_b V rounds give the exact mean, in any order: all rounds are circulant.

    Args:
        nodes: how many nodes, V.
        peers: how many a node sends to in a round.
    """
    at_least("k_peer_exponential", "nodes", nodes, 2)
    at_least("k_peer_exponential", "peers", peers, 1)
    base, stride, shifts = peers + 1, 1, []
    while stride < nodes:
        shifts.append(tuple(sorted({step * stride % nodes for step in range(1, base)} - {0})))
        stride *= base
    arcs = [(i, (i + shift) % nodes) for i in range(nodes) for shift in {s for one in shifts for s in one}]
    every = Graph.from_arcs(nodes, arcs, f"k_peer_exponential({nodes}, peers={peers})")
    return replace(every, rounds=Shifts(nodes, tuple(shifts)))


def random_matchings(nodes: int, seed: int | Seed = 0) -> Graph:
    """Any two may meet; in every round nodes meet in random pairs.

    Args:
        nodes: How many nodes, V.
        seed: Of all pairs of all rounds.
    """
    every = complete(at_least("random_matchings", "nodes", nodes, 2))
    rounds = RandomMatchings(nodes, as_seed(seed))
    return Graph(every.indptr, every.indices, f"random_matchings({nodes})", rounds=rounds)
