"""FedAsync (Xie, Koyejo, Gupta 2019), asynchronous federated optimization: a server mixes in every model that comes.

    node:    y = x_τ after K local steps on f_i(y) + ρ/2 ‖y − x_τ‖²
    server:  x ← (1 − α_t) x + α_t y,    α_t = α · s(t − τ)

s is 1, or falls with how many versions t − τ the model is late: (1 + t − τ)^−a, or a hinge. Nobody waits for anybody
but the server for its own answer; who is fast counts more often, so on unlike data it does not reach the optimum.

`mixes: change` adds α_t (y − x_τ) instead, only what the training changed: FedBuff with a buffer of 1. (The rule is
from memory of the paper.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from walktalk.protocols.effects import UPDATE, Combine, Effect, Train
from walktalk.protocols.mechanisms.asynchronous_server import RESULT, START, DampedServer, Damping, Intake
from walktalk.protocols.mechanisms.server import MODEL


@dataclass(frozen=True)
class FedAsync(DampedServer):
    """A server mixes every model that comes into its own at once, the later it is the less of it.

    Args:
        alpha: how much of a model that is not late is mixed in, α.
        rho: how hard local steps are pulled back to where they began, ρ.
        mixes: "model", what was trained; "change", only what the training changed.
    """

    alpha: Annotated[float, Gt(0), Le(1)] = 0.6
    rho: Annotated[float, Ge(0)] = 0.0
    mixes: Literal["model", "change"] = "model"
    name: ClassVar[str] = "fedasync"
    paper: ClassVar[str] = "Xie, Koyejo, Gupta 2019"
    keeps: ClassVar[str] = "a model at the server"
    sends: ClassVar[str] = "one model to a node and one back for every training"
    guarantees: ClassVar[str] = "late models count less; who is fast counts more often, so a rest stays on unlike nodes"
    title: ClassVar[str] = "FedAsync"
    description: ClassVar[str] = "A server mixes every model that comes into its own at once; nobody waits for others."
    colour: ClassVar[str] = "#CD6155"

    @property
    def needs_own_gradients(self) -> str:
        return "pulls every step of a training back to a model" if self.rho else ""

    def training(self) -> Train:
        return Train(START, steps=self.steps, anchor=START if self.rho else "", pull=self.rho)

    def intake(self) -> Intake:
        return MixingIn(self.alpha, self.damping, self.mixes == "model")


class MixingIn(Intake):
    """Every result makes a new version."""

    __slots__ = ("alpha", "damping", "models")

    def __init__(self, alpha: float, damping: Damping, models: bool) -> None:
        self.alpha, self.damping, self.models = alpha, damping, models

    def result(self) -> Combine:
        if not self.models:
            return Combine(RESULT, {UPDATE: 1.0})
        return Combine(RESULT, {START: 1.0, UPDATE: 1.0}, {UPDATE: 1.0})

    def receive(self, slot: str, late: int) -> tuple[list[Effect], bool]:
        share = self.alpha * self.damping(late)
        kept = 1.0 - share if self.models else 1.0
        return [Combine(MODEL, {MODEL: kept, slot: share}, {MODEL: 1.0 - share, slot: share})], True
