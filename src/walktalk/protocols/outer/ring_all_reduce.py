"""Ring all-reduce (Patarasuk, Yuan 2009), as PyTorch's and DiLoCo's nodes average: long trainings, and no server.

    Δ = mean(θ_i − φ), θ_i = φ after H local steps,    m ← β m + Δ,    φ ← φ + η (Δ + β m)

The mean is made in parts that go round a ring of all nodes, each of which then takes the same outer step. With η = 1
and β = 0, the usual ones here, it is averaging of all models after every training, exactly; with H = 1 and plain SGD,
SGD on everybody's batches at once. With `outer_lr: 0.7, outer_momentum: 0.9` it is DiLoCo without its server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Lt

from walktalk.protocols.effects import Combine, Effect
from walktalk.protocols.mechanisms.rings import MEAN, MODEL, RingRounds, RingRule

MOMENTUM = "momentum"


@dataclass(frozen=True)
class RingAllReduce(RingRounds):
    """Everybody trains from one model, and the mean of all changes is made along a ring, in parts.

    Args:
        outer_lr: how far all go along the mean change, η.
        outer_momentum: of the outer steps, β.
    """

    outer_lr: Annotated[float, Gt(0)] = 1.0
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.0
    name: ClassVar[str] = "ring_all_reduce"
    paper: ClassVar[str] = "Patarasuk, Yuan 2009"
    keeps: ClassVar[str] = "a model at every node, and an outer momentum if there is one"
    sends: ClassVar[str] = "2 (V − 1) / V of a model from each node to the next in a round, in parts"
    guarantees: ClassVar[str] = "all models are the same after every round; SGD on everybody's batches for H = 1"
    title: ClassVar[str] = "ring all-reduce"
    description: ClassVar[str] = "All train from one model and average their changes along a ring, without a server."
    colour: ClassVar[str] = "#7A5C3E"

    def rule(self) -> OuterStep:
        return OuterStep(self)


class OuterStep(RingRule):
    """Goes a Nesterov step along the mean change."""

    __slots__ = ("moving", "settings")

    def __init__(self, settings: RingAllReduce) -> None:
        self.settings, self.moving = settings, False

    def step(self) -> list[Effect]:
        eta, beta = self.settings.outer_lr, self.settings.outer_momentum
        if not beta:
            return [Combine(MODEL, {MODEL: 1.0, MEAN: eta}, {MEAN: 1.0})]
        kept = {MOMENTUM: beta} if self.moving else {}
        self.moving = True
        return [
            Combine(MOMENTUM, {**kept, MEAN: 1.0}),
            Combine(MODEL, {MODEL: 1.0, MEAN: eta, MOMENTUM: eta * beta}, {MEAN: 1.0}),
        ]
