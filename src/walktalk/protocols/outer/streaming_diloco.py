"""Streaming DiLoCo (Douillard et al. 2025): DiLoCo in fragments, whose exchange overlaps with the training.

The model is cut into P fragments. After every local training one of them is exchanged, each in its turn, so each once
in P trainings; δ trainings later what came of it is mixed in, which all have gone on training meanwhile:

    after training k, with p = k mod P:   Δ_i = θ_i,p − φ_p,    Δ̄ = mean of all Δ_i
    at the server:                        m_p ← β m_p + Δ̄,    φ_p ← φ_p + η (Δ̄ + β m_p)          (Nesterov)
    after training k + δ:                 θ_i,p ← α θ_i,p + (1 − α) φ_p

So a P-th of a model is on the way at a time, and nobody waits unless it takes longer than δ trainings. Fragment p has
every P-th parameter, from the p-th on; the paper takes every P-th layer. P = 1, δ = 0 and α = 0 is DiLoCo. (Fragments
in turn, the delay and α are the paper's; the order of the steps is from memory of it.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le, Lt

from walktalk.core.errors import SpecError
from walktalk.protocols.effects import Combine, Effect, Train
from walktalk.protocols.mechanisms.fragments import FragmentProtocol, FragmentRule, outer_slot
from walktalk.protocols.mechanisms.server import MODEL

MEAN = "mean"  # Δ̄


@dataclass(frozen=True)
class StreamingDiLoCo(FragmentProtocol):
    """DiLoCo that exchanges a fragment of the model after each training, and trains on meanwhile.

    Args:
        fragments: how many there are, P; each is exchanged after every P-th training.
        delay: how many trainings later what came of it is mixed in, δ; fewer than there are fragments.
        alpha: how much of its own a node keeps then, α.
        outer_lr: the server's learning rate, η.
        outer_momentum: the server's momentum, β.
    """

    fragments: Annotated[int, Ge(1)] = 4
    delay: Annotated[int, Ge(0)] = 1
    alpha: Annotated[float, Ge(0), Le(1)] = 0.5
    outer_lr: Annotated[float, Gt(0)] = 0.4
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    name: ClassVar[str] = "streaming_diloco"
    paper: ClassVar[str] = "Douillard et al. 2025"
    keeps: ClassVar[str] = "a model and all fragments of the server's at every node, momenta at the server"
    sends: ClassVar[str] = "a fragment of the model to each node and one back after every training"
    guarantees: ClassVar[str] = "DiLoCo for one fragment without delay, of which nothing is kept"
    title: ClassVar[str] = "Streaming DiLoCo"
    description: ClassVar[str] = "DiLoCo that exchanges a fragment of the model at a time, while all train on."
    colour: ClassVar[str] = "#B9770E"

    def __post_init__(self) -> None:
        if self.delay >= self.fragments and (self.delay, self.fragments) != (0, 1):
            raise SpecError(
                f"delay: {self.delay} is not possible with {self.fragments} fragments; take fewer than those"
            )

    def rule(self) -> OuterNesterovOfFragments:
        return OuterNesterovOfFragments(self)


class OuterNesterovOfFragments(FragmentRule):
    """Goes a Nesterov step along everybody's mean change of a fragment."""

    __slots__ = ("moving", "settings")

    def __init__(self, settings: StreamingDiLoCo) -> None:
        train = Train(MODEL, steps=settings.steps)
        super().__init__(settings.fragments, settings.delay, 1.0 - settings.alpha, train)
        self.settings = settings
        self.moving: set[int] = set()  # fragments that have a momentum

    def step(self, fragment: int, changes: Mapping[str, float]) -> list[Effect]:
        eta, beta = self.settings.outer_lr, self.settings.outer_momentum
        outer, momentum = outer_slot(fragment), f"momentum/{fragment}"
        kept = {momentum: beta} if fragment in self.moving else {}
        self.moving.add(fragment)
        return [
            Combine(MEAN, changes),
            Combine(momentum, {**kept, MEAN: 1.0}),
            Combine(outer, {outer: 1.0, MEAN: eta, momentum: eta * beta}, {MEAN: 1.0}),
        ]
