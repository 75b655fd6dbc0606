"""Rounds drawn from a seed that all nodes share: random receivers, random regular graphs, groups, and MATCHA."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, TypeAlias

from annotated_types import Ge

from walktalk.graphs.checks import at_least
from walktalk.graphs.complete import complete
from walktalk.graphs.graph import Graph
from walktalk.graphs.rounds import Rounds, WeightedRounds
from walktalk.seeds import Seed, as_seed

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
