"""Erdős–Rényi G(n, p): every pair is an edge with probability p. The paper's experiments take n = 20, p = 0.3."""

from __future__ import annotations

from math import log
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from walktalk.graphs.checks import at_least, probability, until_connected
from walktalk.graphs.graph import Graph, Ints
from walktalk.seeds import Seed


def erdos_renyi(nodes: int, p: Annotated[float, Ge(0), Le(1)] = 0.3, seed: int | Seed = 0) -> Graph:
    """Every pair is an edge with probability p; drawn again until connected, and the graph's notes say how often.

    Args:
        nodes: how many nodes, V.
        p: the probability of an edge.
        seed: of the sample.
    """
    n = at_least("erdos_renyi", "nodes", nodes, 1)
    p = probability("erdos_renyi", "p", p)
    name = f"erdos_renyi({n}, p={p:g})"
    hint = f"p should be above ln(n)/n = {log(max(n, 2)) / n:.2g}"
    return until_connected(lambda s: Graph.from_edges(n, _pairs(_chosen(n * (n - 1) // 2, p, s)), name), seed, hint)


def _chosen(pairs: int, p: float, seed: Seed) -> Ints:
    """Which of so many pairs are edges: the gaps between them are geometric (Batagelj and Brandes, 2005)."""
    if p == 0 or pairs == 0:
        return np.zeros(0, dtype=np.int64)
    rng, found, last = seed.numpy(), [], -1
    while last < pairs:
        expected = (pairs - last) * p
        gaps = rng.geometric(p, size=int(expected + 4 * np.sqrt(expected) + 8))
        places = last + np.cumsum(np.minimum(gaps, pairs + 1))
        found.append(places)
        last = int(places[-1])
    chosen = np.concatenate(found)
    return chosen[chosen < pairs]


def _pairs(chosen: Ints) -> Ints:
    """Pair number k is (k − b(b − 1)/2, b), with b the largest such that b(b − 1)/2 ≤ k."""
    b = ((1 + np.sqrt(1 + 8 * chosen.astype(np.float64))) / 2).astype(np.int64)
    b -= b * (b - 1) // 2 > chosen  # the square root may round up
    b += (b + 1) * b // 2 <= chosen  # or down
    return np.stack([chosen - b * (b - 1) // 2, b], axis=1)
