"""The Base-(k+1) graph (Takezawa, Sato, Bao, Niwa, Yamada 2023): the exact mean in few rounds, for any V.

In no round does a node meet more than k others, and after all rounds everybody has the mean of all: at most about
2 log_{k+1} V + 2 rounds. Where V has no prime factor above k + 1 it is the hyper-hypercube: in round l nodes whose
numbers differ in digit l alone meet. Otherwise V = a_1 (k+1)^p_1 + a_2 (k+1)^p_2 + …: such parts find their own means,
smaller parts then meet larger ones with weights that leave the mean of all in both, and each spreads it within.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias

from annotated_types import Ge

from walktalk.graphs.checks import at_least
from walktalk.graphs.graph import Graph
from walktalk.graphs.rounds import WeightedRounds

Weights: TypeAlias = dict[tuple[int, int], float]  # of a round's pairs, each pair in the order smaller, larger


@dataclass(frozen=True)
class TabledRounds(WeightedRounds):
    """Rounds that come again and again, each a table: node -> its partners and their weights, the same both ways."""

    tables: tuple[tuple[tuple[tuple[int, float], ...], ...], ...]

    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        return tuple(peer for peer, _ in self.tables[round_ % len(self.tables)][node])

    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        return self.targets(node, round_)

    def weight(self, node: int, source: int, round_: int) -> float:
        return dict(self.tables[round_ % len(self.tables)][node])[source]


def base_graph(nodes: int, peers: Annotated[int, Ge(1)] = 1) -> Graph:
    """Base-(k+1): in every round a node meets up to k others; after all rounds the mean is exact, for any V.

    Args:
        nodes: how many nodes, V.
        peers: the most that a node meets in a round, k.
    """
    at_least("base_graph", "nodes", nodes, 2)
    at_least("base_graph", "peers", peers, 1)
    rounds = base_rounds(nodes, peers)
    edges = [pair for one in rounds for pair in one]
    every = Graph.from_edges(nodes, edges, f"base_graph({nodes}, peers={peers})")
    return replace(every, rounds=TabledRounds(tuple(_table(nodes, one) for one in rounds)))


def base_rounds(nodes: int, peers: int) -> list[Weights]:
    """The shorter of the simple graph, and of one whose smooth factor is taken out and averaged over at the end."""
    everyone, smooth = list(range(nodes)), _smooth_part(nodes, peers + 1)
    simple, rest = _simple(everyone, peers), nodes // smooth
    parts = [everyone[k * rest : (k + 1) * rest] for k in range(smooth)]
    within = _beside([_simple(part, peers) for part in parts])
    across = _beside([_hyper(list(group), peers) for group in zip(*parts, strict=True)])
    return min(simple, within + across, key=len)


def _simple(nodes: Sequence[int], peers: int) -> list[Weights]:
    """The simple Base-(k+1) graph of these nodes."""
    if _smooth_part(len(nodes), peers + 1) == len(nodes):
        return _hyper(nodes, peers)
    parts = _parts(nodes, peers + 1)  # largest first; each in a_l pieces of (k+1)^p_l
    rounds = _beside([_hyper([v for piece in pieces for v in piece], peers) for pieces in parts])
    later: list[list[Weights]] = []
    for number, pieces in enumerate(parts[:-1]):
        rest = [v for others in parts[number + 1 :] for piece in others for v in piece]
        weight = len(pieces[0]) / (len(pieces) * len(pieces[0]) + len(rest))
        meet = {_pair(u, piece[k]): weight for k, u in enumerate(rest) for piece in pieces}
        wait: list[Weights] = [{} for _ in range(number)]
        later.append([*wait, meet, *_beside([_hyper(piece, peers) for piece in pieces])])
    return rounds + _beside(later)


def _hyper(nodes: Sequence[int], peers: int) -> list[Weights]:
    """The hyper-hypercube of these nodes, whose number has no prime factor above k + 1."""
    rounds, stride, left = [], 1, len(nodes)
    while left > 1:
        size = max(f for f in range(2, peers + 2) if left % f == 0)
        near = [(i, i + j * stride) for i in range(len(nodes)) for j in range(1, size)]
        same = stride * size  # groups stand within stretches of this length
        met = [(i, j) for i, j in near if i // same == j // same]
        rounds.append({_pair(nodes[i], nodes[j]): 1.0 / size for i, j in met})
        stride, left = same, left // size
    return rounds


def _parts(nodes: Sequence[int], base: int) -> list[list[list[int]]]:
    """The nodes by the digits of their number in this base, largest first: each part in equal pieces."""
    parts, start, power = [], 0, 1
    while power * base <= len(nodes):
        power *= base
    while power:
        count = (len(nodes) - start) // power
        pieces = [list(nodes[start + k * power : start + (k + 1) * power]) for k in range(count)]
        parts += [pieces] if pieces else []
        start, power = start + count * power, power // base
    return parts


def _beside(several: Sequence[list[Weights]]) -> list[Weights]:
    """Rounds of disjoint sets of nodes, at the same time."""
    longest = max((len(one) for one in several), default=0)
    return [{pair: w for one in several if k < len(one) for pair, w in one[k].items()} for k in range(longest)]


def _smooth_part(number: int, most: int) -> int:
    """The largest divisor all of whose prime factors are at most this."""
    left = number
    for factor in range(2, most + 1):
        while left % factor == 0:
            left //= factor
    return number // left


def _pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def _table(nodes: int, weights: Weights) -> tuple[tuple[tuple[int, float], ...], ...]:
    rows: list[list[tuple[int, float]]] = [[] for _ in range(nodes)]
    for (a, b), weight in weights.items():
        rows[a].append((b, weight))
        rows[b].append((a, weight))
    return tuple(tuple(sorted(row)) for row in rows)
