"""MATCHA (Wang, Sahu, Yang, Joshi, Kar 2019): a graph's matchings, each switched on with a probability of its own.

The edges are split into matchings, sets in which no two edges share a node. In every round matching j is on with
probability p_j, drawn from a seed that all share; Σ p_j is the budget times the number of matchings. The p_j make the
algebraic connectivity of Σ p_j L_j as large as it can be, so that links that hold the graph together are on more often.
Weights are those of Metropolis and Hastings on the edges of the round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt
from annotated_types import Gt, Le

from walktalk.errors import GraphError
from walktalk.graphs.graph import Graph, GraphLike, as_graph
from walktalk.graphs.rounds import Rounds
from walktalk.seeds import Seed, as_seed

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
        return _partners(self.matchings, self.chances, self.seed, round_).get(node, ())

    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        return self.targets(node, round_)


@lru_cache(maxsize=64)
def _partners(matchings: Matchings, chances: tuple[float, ...], seed: Seed, round_: int) -> dict[int, tuple[int, ...]]:
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
        raise GraphError(f"matcha: budget = {budget}, but it must be above 0 and at most 1")
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
