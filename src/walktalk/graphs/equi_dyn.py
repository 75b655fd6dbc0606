"""EquiDyn (Song, Li, Jin, Shi, Yan, Yin, Yuan 2022): one random peer a round; agreement does not slow down with V.

In round t everybody sends to the node s further, s drawn anew from 1 … V − 1, and gives what comes the weight
b = η (V − 1)/V. In expectation a round leaves a² + b² − 2ab/(V − 1), with a = 1 − b, of the mean squared distance to
the mean: about half for η = 1/2, whatever V is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Annotated

from annotated_types import Gt, Le

from walktalk.errors import GraphError
from walktalk.graphs.checks import at_least
from walktalk.graphs.complete import complete
from walktalk.graphs.graph import Graph
from walktalk.graphs.rounds import Pairs, WeightedRounds
from walktalk.seeds import Seed, as_seed


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
        raise GraphError(f"equi_dyn: eta = {eta}, but it must be above 0 and 1 or less")
    every, given = complete(nodes), eta * (nodes - 1) / nodes
    kind = RandomShifts if directed else ShiftedPairs
    rounds: WeightedRounds = kind(nodes, given, as_seed(seed).child("equi_dyn"))
    name = f"equi_dyn({nodes}, eta={eta:g}{'' if directed else ', pairs'})"
    return replace(every, name=name, directed=directed, rounds=rounds)
