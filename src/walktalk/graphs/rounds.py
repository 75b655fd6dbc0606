"""Graphs that change by round: who meets whom, as a pure function of the round's number, the same at every node.

A topology of this kind is a `Graph` of all edges that are ever used, with a `Rounds` beside it. Protocols that go by
rounds ask `NetworkView.meets`; for all others it is the graph of all edges.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, TypeAlias

from annotated_types import Ge

from walktalk.core.seeds import Seed, as_seed
from walktalk.graphs.classic import at_least, complete
from walktalk.graphs.graph import Graph, Rounds, WeightedRounds


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
    """A round sequence of several peers each, with b = peers + 1. In round t node i sends to
    i + b^t, i + 2 b^t … i + peers · b^t (t modulo log_b V).

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


# Rounds drawn from a seed that all nodes share: random receivers, random regular graphs, groups, and MATCHA.

Lists: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RandomTargets(WeightedRounds):
    """In every round each sends to so many others, drawn by each alone; what came and one's own count equally."""

    nodes: int
    peers: int
    seed: Seed

    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        return _receivers(self.nodes, self.peers, self.seed, round_)[0][node]

    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        return _receivers(self.nodes, self.peers, self.seed, round_)[1][node]

    def weight(self, node: int, source: int, round_: int) -> float:
        return 1.0 / (len(self.sources(node, round_)) + 1)


@dataclass(frozen=True)
class RandomCirculants(Rounds):
    """In every round nodes stand in a new random circle, and each sends to so many behind it: all get as many."""

    nodes: int
    peers: int
    seed: Seed

    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        return self._around(node, round_, 1)

    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        return self._around(node, round_, -1)

    def _around(self, node: int, round_: int, way: int) -> tuple[int, ...]:
        order, place = _circle(self.nodes, self.seed, round_)
        return tuple(sorted(order[(place[node] + way * k) % self.nodes] for k in range(1, self.peers + 1)))


@dataclass(frozen=True)
class RandomGroups(Rounds):
    """In every round nodes meet in groups of one size, drawn anew; the last group takes those that are left over."""

    nodes: int
    size: int
    seed: Seed

    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        order, place = _circle(self.nodes, self.seed, round_)
        groups = max(1, self.nodes // self.size)
        group = min(place[node] // self.size, groups - 1)
        end = self.nodes if group == groups - 1 else (group + 1) * self.size
        return tuple(sorted(peer for peer in order[group * self.size : end] if peer != node))

    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        return self.targets(node, round_)


@lru_cache(maxsize=64)
def _receivers(nodes: int, peers: int, seed: Seed, round_: int) -> tuple[Lists, Lists]:
    """Whom each sends to, and whom each hears."""
    rng = seed.child("receivers", round_).numpy()
    drawn = [rng.choice(nodes - 1, peers, replace=False).tolist() for _ in range(nodes)]
    targets = [sorted(k + (k >= node) for k in one) for node, one in enumerate(drawn)]  # anybody but oneself
    sources: list[list[int]] = [[] for _ in range(nodes)]
    for node, one in enumerate(targets):
        for to in one:
            sources[to].append(node)
    return tuple(map(tuple, targets)), tuple(map(tuple, sources))


@lru_cache(maxsize=64)
def _circle(nodes: int, seed: Seed, round_: int) -> tuple[list[int], list[int]]:
    """A random order of the nodes, and where each stands in it."""
    order = seed.child("circle", round_).numpy().permutation(nodes)
    return order.tolist(), order.argsort().tolist()


def random_groups(nodes: int, seed: int | Seed = 0, size: Annotated[int, Ge(2)] = 4) -> Graph:
    """Any may meet; in every round nodes meet in random groups, all of a group with each other.

    Args:
        nodes: how many nodes, V.
        seed: of the draws.
        size: of a group; where it does not divide V, the last group is larger.
    """
    at_least("random_groups", "nodes", nodes, 2)
    at_least("random_groups", "size", size, 2)
    every = complete(nodes)
    return replace(every, name=f"random_groups({nodes}, size={size})", rounds=RandomGroups(nodes, size, as_seed(seed)))
