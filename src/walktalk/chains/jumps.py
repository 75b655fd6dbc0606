"""Metropolis–Hastings with jumps (MHLJ; Liu, Dwyer, El Rouayheb, "Decentralized learning via random walk with jumps").

With probability p_J a walk does not take a step of the weighted chain but runs over d uniform hops, d of a truncated
geometric distribution: P(d) ∝ p_d (1 − p_d)^(d−1) for d = 1 … r. So it gets away from a node that is much heavier than
all around it ("entrapment"), at the price of a long run that is off the weights by the order of p_J. The abstract was
read; the distribution of d is from memory of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from walktalk.chains.chain import Chain
from walktalk.chains.metropolis_hastings import metropolis_hastings
from walktalk.chains.simple_walk import simple_walk
from walktalk.graphs import GraphLike, as_graph


def hops_of_a_jump(random: Random, chance: float, longest: int) -> int:
    """How many hops a jump goes over; one random number.

    Args:
        random: Where it comes from.
        chance: p_d, of ending after each hop.
        longest: r, the most.
    """
    x = random.random()
    for hops, share in enumerate(jump_lengths(chance, longest), start=1):
        x -= share
        if x < 0:
            return hops
    return longest


def jump_lengths(chance: float, longest: int) -> list[float]:
    """P(d) for d = 1 … r."""
    raw = [chance * (1.0 - chance) ** (d - 1) for d in range(1, longest + 1)]
    return [one / sum(raw) for one in raw]


def metropolis_with_jumps(
    graph: GraphLike, weights: Sequence[float] | None, jump: float, chance: float = 0.5, longest: int = 3
) -> Chain:
    """From one visit to the next; nodes that a jump only runs through are none.

    Args:
        graph: The graph that walks move on.
        weights: Of the chain between jumps; see `metropolis_hastings`.
        jump: p_J, how often it jumps.
        chance: p_d, of a jump's end after each hop.
        longest: r, the most hops of a jump.
    """
    graph = as_graph(graph)
    usual, hop = metropolis_hastings(graph, weights).matrix, simple_walk(graph).matrix
    total, power = (1.0 - jump) * usual, hop
    for share in jump_lengths(chance, longest):
        total = total + jump * share * power
        power = power @ hop
    return Chain(total.tocsr(), f"metropolis_with_jumps({graph.name}, jump={jump:g})")
