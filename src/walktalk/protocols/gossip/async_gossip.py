"""Asynchronous gossip, AD-PSGD (Lian et al. 2018; the paper's Algorithm 2), with three ways to mix.

    x_i ← x_i − η g_i(x_i of when the training began),    x_i, x_j ← (x_i + x_j) / 2 with a random neighbour j

`pairwise`, the default and what is really run (Lian et al. 2018, Section 3.2): after its update the active node
averages with one random neighbour (`mechanisms.pairs`).

`neighbourhood`: the same exchange with all neighbours at once, with the Metropolis–Hastings weights p_ij = p_ji.

`matrix`: Algorithm 2 to the letter, all nodes mix with P after every single update; only a simulator can.

With `overlap` a node trains on at once while its offer and the answer are on the way, as the paper's two threads do
(computing and communicating go on at the same time). Without it, a node waits for the answer and trains on what came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, get_args

from walktalk.core.errors import SpecError
from walktalk.protocols.effects import Arrival, Effect, MixEveryone, apply_update
from walktalk.protocols.machine import Machine, NetworkView, weight
from walktalk.protocols.mechanisms.pair_rule import MODEL, InPairs, PairRule
from walktalk.protocols.mechanisms.pairs import Turns
from walktalk.protocols.self_description import RUNTIMES, InLabel, Runtime

Mixing = Literal["pairwise", "neighbourhood", "matrix"]
TRAINS = "Every node trains its own model and averages it with"
LOOKS: dict[str, tuple[str, str, str]] = {  # title, description, colour: vermilion, brown, orange
    "pairwise": ("gossip in pairs", f"{TRAINS} one random neighbour.", "#D55E00"),
    "neighbourhood": ("gossip with neighbours", f"{TRAINS} all neighbours.", "#8C510A"),
    "matrix": (
        "gossip with everybody",
        "After every single training all nodes mix their models; for theory only.",
        "#E69F00",
    ),
}


@dataclass(frozen=True)
class AsyncGossip(InPairs):
    """Every node trains its own model and averages with neighbours, waiting for nobody.

    Args:
        mixing: with one random neighbour, with all, or (in the simulator alone) everybody with everybody.
        overlap: whether a node trains on while it waits for an answer.
    """

    mixing: Annotated[Mixing, InLabel("-{}", always=True)] = "pairwise"
    overlap: bool = False
    name: ClassVar[str] = "async_gossip"
    also_known_as: ClassVar[tuple[str, ...]] = ("ad_psgd", "pairwise_gossip")
    proved: ClassVar[str] = "Theorem 2, for matrix mixing"
    paper: ClassVar[str] = "Lian, Zhang, Zhang, Liu, ICML 2018 (AD-PSGD); this study's paper, Algorithm 2"
    keeps: ClassVar[str] = "a model at every node"
    sends: ClassVar[str] = "a model to a random neighbour, or to all, and one back from each"
    guarantees: ClassVar[str] = (
        "mixing never changes the sum of all models; a constant rate leaves a rest on unlike nodes (Theorem 2)"
    )
    means_of_models: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mixing not in get_args(Mixing):
            raise SpecError(f"mixing: {self.mixing!r} is unknown; allowed: {', '.join(get_args(Mixing))}")

    @property
    def title(self) -> str:
        return LOOKS[self.mixing][0] + (", overlapping" if self.overlap else "")

    @property
    def description(self) -> str:
        return LOOKS[self.mixing][1]

    @property
    def colour(self) -> str:
        return LOOKS[self.mixing][2]

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return {} if self.mixing == "matrix" else super().messages

    @property
    def runtimes(self) -> tuple[Runtime, ...]:
        return ("sim",) if self.mixing == "matrix" else RUNTIMES

    @property
    def instead(self) -> str:
        return "mixing: pairwise"

    @property
    def why_failures_end_it(self) -> str:
        return "it mixes all nodes at once, dead or alive" if self.mixing == "matrix" else ""

    @property
    def why_nodes_stay(self) -> str:
        return self.why_failures_end_it or super().why_nodes_stay

    @classmethod
    def usual(cls) -> tuple[AsyncGossip, ...]:
        return tuple(cls(mixing=mixing) for mixing in get_args(Mixing))

    def machine(self, network_view: NetworkView) -> Machine:
        if self.mixing == "matrix":
            return Turns(replace(network_view, neighbours=(), degrees=()), MixWithEveryone(), None)
        everyone = self.mixing == "neighbourhood"
        rule = AverageWithAll() if everyone else PairRule()
        return Turns(network_view, rule, self.waits, self.overlap, everyone)


class AverageWithAll(PairRule):
    """Averages with each neighbour by the weight p_ij that the Metropolis–Hastings matrix gives it."""

    __slots__ = ()

    def weight(self, around: NetworkView, peer: int) -> float:
        return weight(around, peer)


class MixWithEveryone(PairRule):
    """Algorithm 2: update (line 5), everyone mixes (line 6), train on (line 7); there are no pairs."""

    __slots__ = ()

    def learn(self, moved: bool) -> list[Effect]:
        return [apply_update(MODEL, moved=True), MixEveryone(MODEL)]
