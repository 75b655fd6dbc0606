"""DiLoCo (Douillard et al. 2023): long local trainings, and a server's Nesterov steps along the mean change.

    Δ = mean(φ − θ_i), θ_i = φ after H local steps,    m ← β m + Δ,    φ ← φ − η (Δ + β m)

The server is the middle of a star, so a round costs a node one model up and one down. The inner optimizer's state stays
at the node with `optimizer_state: node`, as there; it is never averaged. With β = 0 and η = 1 it is FedAvg with equal
weights, and with H = 1 and plain SGD beside that, SGD on everybody's batches at once. FedAvgM, which goes
along m alone, is `fedopt` with `optimizer: momentum`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Lt

from walktalk.protocols.effects import Combine, Effect, Train
from walktalk.protocols.mechanisms.server import CHANGE, MODEL, ServerRounds, ServerRule

MOMENTUM, MEAN = "momentum", "mean"  # −m and −Δ


@dataclass(frozen=True)
class DiLoCo(ServerRounds):
    """All train long from a server's model, which then goes a Nesterov step along the mean change.

    Args:
        outer_lr: the server's learning rate, η.
        outer_momentum: the server's momentum, β.
    """

    outer_lr: Annotated[float, Gt(0)] = 0.7
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    name: ClassVar[str] = "diloco"
    paper: ClassVar[str] = "Douillard et al. 2023"
    keeps: ClassVar[str] = "a model and an outer momentum at the server"
    sends: ClassVar[str] = "one model to each node and one change back in a round"
    guarantees: ClassVar[str] = "SGD on everybody's batches at once for H = 1 and plain outer steps"
    title: ClassVar[str] = "DiLoCo"
    description: ClassVar[str] = (
        "All train long from one model, which then takes a momentum step along the mean change."
    )
    colour: ClassVar[str] = "#94650C"

    def rule(self) -> OuterNesterov:
        return OuterNesterov(self)


class OuterNesterov(ServerRule):
    """Goes a Nesterov step along the mean change. Running statistics are the mean of those of the trained models."""

    __slots__ = ("moving", "settings")

    def __init__(self, settings: DiLoCo) -> None:
        super().__init__(Train(MODEL, steps=settings.steps))
        self.settings, self.moving = settings, False

    def gather(self, came: Mapping[str, Mapping[str, float]]) -> list[Effect]:
        eta, beta = self.settings.outer_lr, self.settings.outer_momentum
        kept = {MOMENTUM: beta} if self.moving else {}
        self.moving = True
        return [
            Combine(MEAN, came[CHANGE]),
            Combine(MOMENTUM, {**kept, MEAN: 1.0}),
            Combine(MODEL, {MODEL: 1.0, MEAN: eta, MOMENTUM: eta * beta}, {MEAN: 1.0}),
        ]
