"""FedBuff (Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba 2022): a server that takes a step for every K results.

    node:    Δ_i = y − x_τ after local steps from x_τ
    server:  Δ̄ ← Δ̄ + s(t − τ) Δ_i; when K have come:  x ← x + η_g Δ̄ / K,  Δ̄ ← 0,  t ← t + 1

s(t − τ) = 1/√(1 + t − τ): what is late counts less. Nobody waits but for the server's own answer. With K = 1 it is
FedAsync that mixes changes. (That a step is taken when K have come is in the paper's abstract; s and η_g are from
memory of the paper.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt

from walktalk.protocols.effects import UPDATE, Combine, Effect, Forget, Train
from walktalk.protocols.mechanisms.asynchronous_server import RESULT, START, DampedServer, Damping, Intake
from walktalk.protocols.mechanisms.server import MODEL

BUFFER = "buffer"  # η_g Δ̄ / K


@dataclass(frozen=True)
class FedBuff(DampedServer):
    """A server takes a step whenever so many changes have come, from whomever.

    Args:
        buffer: how many changes make a step, K.
        server_rate: how much of their mean the server takes, η_g.
    """

    buffer: Annotated[int, Ge(1)] = 4
    server_rate: Annotated[float, Gt(0)] = 1.0
    name: ClassVar[str] = "fedbuff"
    proved: ClassVar[str] = "ours, for nodes that are as fast as each other, with one local step"
    bound: ClassVar[str] = "fedbuff_order"
    paper: ClassVar[str] = "Nguyen et al., AISTATS 2022"
    keeps: ClassVar[str] = "a model and a buffer of changes at the server"
    sends: ClassVar[str] = "one model to a node and one change back for every training"
    guarantees: ClassVar[str] = "a step for every K results, nobody waits for the slow; who is fast counts more often"
    title: ClassVar[str] = "FedBuff"
    description: ClassVar[str] = "A server takes a step whenever a few changes have come; nobody waits for others."
    colour: ClassVar[str] = "#A93226"

    def training(self) -> Train:
        return Train(START, steps=self.steps)

    def intake(self) -> Intake:
        return Buffered(self.buffer, self.server_rate, self.damping)


class Buffered(Intake):
    """A step's running statistics are half the model's of before and half the mean of those that were trained."""

    __slots__ = ("count", "damping", "rate", "size")

    def __init__(self, size: int, rate: float, damping: Damping) -> None:
        self.size, self.rate, self.damping, self.count = size, rate, damping, 0

    def result(self) -> Combine:
        return Combine(RESULT, {UPDATE: 1.0})

    def receive(self, slot: str, late: int) -> tuple[list[Effect], bool]:
        kept, share = {BUFFER: 1.0} if self.count else {}, 1.0 / self.size
        weight = self.rate * share * self.damping(late)
        add = Combine(BUFFER, {**kept, slot: weight}, {**kept, slot: share})
        self.count = (self.count + 1) % self.size
        if self.count:
            return [add], False
        return [add, Combine(MODEL, {MODEL: 1.0, BUFFER: 1.0}, {MODEL: 0.5, BUFFER: 0.5}), Forget(BUFFER)], True
