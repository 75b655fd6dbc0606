"""Multi-Walk: R copies of the model walk over the graph and are mixed at one node (Algorithm 1).

Every visited node trains the walk on its data (line 6). The aggregator ("Node 0") also mixes it with the others:

    x_r ← u_l + (x_r − u_r) / R        (line 8)
    u_r ← x_r,  l ← r                  (lines 9, 10)

where u_r is its copy of walk r from the last visit and l the walk that visited last. Then the walk moves on by the
Metropolis–Hastings matrix P (lines 11, 12); where P keeps it in place, it trains here again and nothing is sent.
With R = 1 line 8 is the identity: a plain random walk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Annotated, Any, ClassVar

from walktalk.chains import metropolis_step
from walktalk.protocols.effects import Combine, Effect, Train, absorb, apply_update
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.tokens.protocol import Walks
from walktalk.protocols.mechanisms.tokens.rule import Carried, WalkRule, copy_slot, walk_slot
from walktalk.protocols.self_description import InLabel, Law

COLOURS = {  # by the number of walks; of Okabe and Ito (2008) and Tol's muted set
    1: "#0072B2",  # blue
    2: "#56B4E9",  # sky
    4: "#009E73",  # green
    6: "#999933",  # olive
    8: "#332288",  # indigo
    10: "#882255",  # wine
    15: "#CC79A7",  # pink
    16: "#AA4499",  # purple
    32: "#DDCC77",  # sand
}


@dataclass(frozen=True)
class MultiWalk(Walks):
    """R random walks, mixed at the aggregator.

    Args:
        walks: how many, R.
    """

    walks: Annotated[int, InLabel("-{}", always=True)] = 1
    name: ClassVar[str] = "multi_walk"
    known_forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"random_walk": {"walks": 1}}
    proved: ClassVar[str] = "Theorem 1, and 3 where its aggregator dies"
    models_travel: ClassVar[bool] = True
    paper: ClassVar[str] = "this study's paper, Algorithm 1"
    keeps: ClassVar[str] = "R models walk; the aggregator has a copy of each from its last visit"
    sends: ClassVar[str] = "one model a hop; nothing where a walk stays at its node"
    guarantees: ClassVar[str] = (
        "every update is in the aggregate once; a constant rate leaves a rest on unlike nodes (Theorem 1)"
    )
    conserves: ClassVar[tuple[Law, ...]] = ("once",)
    means_of_models: ClassVar[bool] = True

    @property
    def title(self) -> str:
        return "one walk" if self.walks == 1 else f"{self.walks} walks"

    @property
    def description(self) -> str:
        if self.walks == 1:
            return "One model wanders from node to node and is trained on the data of each."
        return f"{self.walks} models wander from node to node, trained on the data of each and mixed at one node."

    @property
    def colour(self) -> str | None:
        return COLOURS.get(self.walks)

    @classmethod
    def usual(cls) -> tuple[MultiWalk, ...]:
        return tuple(cls(walks) for walks in range(1, 129))

    def rule(self, around: NetworkView) -> WalkRule:
        return AlgorithmOne()


class AlgorithmOne(WalkRule):
    """Algorithm 1 at one node: x_r is in `walk_slot(r)`, and at the aggregator u_r in `copy_slot(r)`.

    Walk r begins at node r − 1 with the initial model (line 1), and so does every u_r (line 2) at the aggregator.
    """

    __slots__ = ()

    def work(self, walk: int, state: bytes, random: Random) -> tuple[list[Effect], bytes]:
        """Line 5: this node trains the walk that is here."""
        return [training_of(walk)], state

    def learn(self, event: Trained, state: bytes) -> tuple[list[Effect], bytes]:
        """Line 6: x_r takes in what was learned."""
        return [apply_update(walk_slot(event.walk))], state

    def mix(self, walk: int, latest: int, share: float) -> list[Effect]:
        """Lines 8 and 9, at the aggregator alone (line 7), with share = 1/R; `walk` is the latest then (line 10)."""
        x, u, u_latest = walk_slot(walk), copy_slot(walk), copy_slot(latest)
        return [
            absorb(x, u_latest, share, x, u),  # x_r ← u_l + (x_r − u_r) / R
            Combine(u, {x: 1.0}),  # u_r ← x_r
        ]

    def step(
        self, node: int, peers: Sequence[int], degrees: Sequence[int], carried: Carried, random: Random
    ) -> tuple[int, Carried]:
        """Line 11: the next node, by the row of P; the walk is sent there (line 12), or stays."""
        return metropolis_step(node, len(peers), peers, degrees, random), carried._replace(
            jumps=0
        ) if carried.jumps else carried


@lru_cache(maxsize=4096)  # the same few are asked for at every iteration
def training_of(walk: int) -> Train:
    """The effect that trains a walk."""
    return Train(walk_slot(walk), walk)
