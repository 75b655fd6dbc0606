"""The Base-(k+1) graph (Takezawa, Sato, Bao, Niwa, Yamada 2023): the exact mean in few rounds, for any V.

In no round does a node meet more than k others, and after all rounds everybody has the mean of all: at most about
2 log_{k+1} V + 2 rounds. Where V has no prime factor above k + 1 it is the hyper-hypercube: in round l nodes whose
numbers differ in digit l alone meet. Otherwise V = a_1 (k+1)^p_1 + a_2 (k+1)^p_2 + …: such parts find their own means,
smaller parts then meet larger ones with weights that leave the mean of all in both, and each spreads it within.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le

from walktalk.core.errors import GraphError
from walktalk.core.seeds import Seed, as_seed
from walktalk.core.settings import misfit
from walktalk.graphs.classic import at_least, complete
from walktalk.graphs.graph import Graph, GraphLike, Rounds, WeightedRounds, as_graph
from walktalk.graphs.rounds import Pairs

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


# EquiDyn (Song, Li, Jin, Shi, Yan, Yin, Yuan 2022): one random peer a round; agreement does not slow down with V.
#
# In round t everybody sends to the node s further, s drawn anew from 1 … V − 1, and gives what comes the weight
# b = η (V − 1)/V. In expectation a round leaves a² + b² − 2ab/(V − 1), with a = 1 − b, of the mean squared distance to
# the mean: about half for η = 1/2, whatever V is.


@dataclass(frozen=True)
class RandomShifts(WeightedRounds):
    """OD-EquiDyn: in round t node i sends to i + s(t), modulo the number of nodes."""

    nodes: int
    given: float  # the weight of what comes
    seed: Seed

    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        return ((node + _shift(self.nodes, self.seed, round_)) % self.nodes,)

    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        return ((node - _shift(self.nodes, self.seed, round_)) % self.nodes,)

    def weight(self, node: int, source: int, round_: int) -> float:
        return self.given


@dataclass(frozen=True)
class ShiftedPairs(Pairs, WeightedRounds):
    """OU-EquiDyn: from a node that is drawn, too, on, whoever is free pairs with the one s(t) further if that is."""

    nodes: int
    given: float
    seed: Seed

    def partners(self, round_: int) -> tuple[int, ...]:
        return _partners(self.nodes, self.seed, round_)

    def weight(self, node: int, source: int, round_: int) -> float:
        return self.given


@lru_cache(maxsize=64)
def _shift(nodes: int, seed: Seed, round_: int) -> int:
    return int(seed.child("shift", round_).numpy().integers(1, nodes))


@lru_cache(maxsize=64)
def _partners(nodes: int, seed: Seed, round_: int) -> tuple[int, ...]:
    """Everybody's partner; oneself, where one stays alone."""
    shift, start = _shift(nodes, seed, round_), int(seed.child("start", round_).numpy().integers(nodes))
    partner = list(range(nodes))
    for node in chain(range(start, nodes), range(start)):
        other = (node + shift) % nodes
        if partner[node] == node and partner[other] == other:
            partner[node], partner[other] = other, node
    return tuple(partner)


def equi_dyn(
    nodes: int, seed: int | Seed = 0, eta: Annotated[float, Gt(0), Le(1)] = 0.5, directed: bool = True
) -> Graph:
    """Any may meet; in every round each sends to the node a random number further, which is the same for all.

    Args:
        nodes: how many nodes, V.
        seed: of the draws.
        eta: how much of what comes is taken: its weight is eta (V − 1)/V.
        directed: whether links are used one way (OD-EquiDyn); if not, nodes meet in pairs (OU-EquiDyn).
    """
    at_least("equi_dyn", "nodes", nodes, 2)
    if not 0 < eta <= 1:
        raise misfit("equi_dyn: eta", eta, "a number above 0, at most 1", GraphError)
    every, given = complete(nodes), eta * (nodes - 1) / nodes
    kind = RandomShifts if directed else ShiftedPairs
    rounds: WeightedRounds = kind(nodes, given, as_seed(seed).child("equi_dyn"))
    name = f"equi_dyn({nodes}, eta={eta:g}{'' if directed else ', pairs'})"
    return replace(every, name=name, directed=directed, rounds=rounds)


# MATCHA (Wang, Sahu, Yang, Joshi, Kar 2019): a graph's matchings, each switched on with a probability of its own.
#
# The edges are split into matchings, sets in which no two edges share a node. In every round matching j is on with
# probability p_j, drawn from a seed that all share; Σ p_j is the budget times the number of matchings. The p_j make the
# algebraic connectivity of Σ p_j L_j as large as it can be, so that links that hold the graph together are on more
# often. Weights are those of Metropolis and Hastings on the edges of the round.

Matchings: TypeAlias = tuple[tuple[tuple[int, int], ...], ...]
Floats: TypeAlias = npt.NDArray[np.float64]
STEPS = 300  # of the search for the probabilities


@dataclass(frozen=True)
class RandomSubgraphs(Rounds):
    """In every round the union of those matchings that are on."""

    matchings: Matchings
    chances: tuple[float, ...]  # with which each is on
    seed: Seed

    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        return _matched_partners(self.matchings, self.chances, self.seed, round_).get(node, ())

    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        return self.targets(node, round_)


@lru_cache(maxsize=64)
def _matched_partners(
    matchings: Matchings, chances: tuple[float, ...], seed: Seed, round_: int
) -> dict[int, tuple[int, ...]]:
    on = seed.child("matcha", round_).numpy().random(len(matchings)) < np.array(chances)
    met: dict[int, list[int]] = {}
    for pairs in (pairs for pairs, is_on in zip(matchings, on, strict=True) if is_on):
        for a, b in pairs:
            met.setdefault(a, []).append(b)
            met.setdefault(b, []).append(a)
    return {node: tuple(sorted(peers)) for node, peers in met.items()}


def matcha(graph: GraphLike, budget: Annotated[float, Gt(0), Le(1)] = 0.5, seed: int | Seed = 0) -> Graph:
    """A graph of which only some links are used in each round, the important ones more often.

    Args:
        graph: The graph, undirected.
        budget: How many of its matchings are used in a round, on average, as a share of all.
        seed: Of what is on in which round.
    """
    whole = as_graph(graph).connected()
    if whole.directed or whole.rounds is not None:
        raise GraphError(f"matcha: {whole.name} has one-way links or changes by round; take a plain graph")
    if not 0 < budget <= 1:
        raise misfit("matcha: budget", budget, "a number above 0, at most 1", GraphError)
    matchings = split(whole)
    rounds = RandomSubgraphs(matchings, tuple(chances(whole.nodes, matchings, budget)), as_seed(seed))
    return replace(whole, name=f"matcha({whole.name}, budget={budget:g})", rounds=rounds)


def split(graph: Graph) -> Matchings:
    """The edges in matchings: each edge goes to the first in which both its ends are free, busiest ends first."""
    degrees = graph.degrees
    found: list[list[tuple[int, int]]] = []
    busy: list[set[int]] = []  # the nodes of each
    order = sorted(graph.edge_list().tolist(), key=lambda edge: (-max(degrees[edge]), -min(degrees[edge]), edge))
    for a, b in order:
        free = next((k for k, taken in enumerate(busy) if a not in taken and b not in taken), len(busy))
        if free == len(busy):
            found.append([])
            busy.append(set())
        found[free].append((a, b))
        busy[free] |= {a, b}
    return tuple(tuple(sorted(pairs)) for pairs in found)


def chances(nodes: int, matchings: Matchings, budget: float) -> list[float]:
    """The probabilities that maximize λ₂ of Σ p_j L_j, by supergradient steps: λ₂ is concave in them."""
    p = best = np.full(len(matchings), budget)
    total, highest = budget * len(matchings), -1.0
    for step in range(STEPS):
        values, vectors = np.linalg.eigh(_laplacian(nodes, matchings, p))
        if values[1] > highest:
            best, highest = p, float(values[1])
        fiedler = vectors[:, 1]
        slope = np.array([sum((fiedler[a] - fiedler[b]) ** 2 for a, b in pairs) for pairs in matchings])
        p = _within(p + slope / (np.linalg.norm(slope) or 1.0) * 0.3 / np.sqrt(step + 1), total)
    return [float(one) for one in best]


def _laplacian(nodes: int, matchings: Matchings, p: Floats) -> Floats:
    laplacian = np.zeros((nodes, nodes))
    for pairs, chance in zip(matchings, p, strict=True):
        for a, b in pairs:
            laplacian[[a, b], [a, b]] += chance
            laplacian[[a, b], [b, a]] -= chance
    return laplacian


def _within(p: Floats, total: float) -> Floats:
    """The nearest probabilities with this sum: all lowered or raised alike, and cut off at 0 and 1."""
    low, high = float(p.min()) - 1.0, float(p.max())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(p - middle, 0, 1).sum() > total else (low, middle)
    return np.clip(p - high, 0, 1)
