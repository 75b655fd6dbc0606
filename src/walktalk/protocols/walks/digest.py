"""DIGEST, with one stream: all nodes train all the time, and a travelling model gathers what they learned.

Gholami and Seferoglu, "DIGEST: fast and communication efficient decentralized learning with local updates" (2023).
Every node trains its own model x_v again and again. When the travelling model y is there and a training ends:

    y ← y + (x_v − b_v) / V,    b_v what the node had from y when it was there last
    x_v ← y,  b_v ← y

So y is x_0 and 1/V of everything that any node had learned by its last visit, counted once. It goes on by the paper's
P; where that keeps it in place it waits for the next training. One model a hop, V trainings meanwhile. Nodes drift
apart between two visits, so unlike nodes leave a rest, as with local SGD. The abstract was read; the rule is from
memory of the paper. Several streams, which the paper has too, are not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt

from walktalk.core.errors import SpecError
from walktalk.protocols.effects import INITIAL, Arrival, Combine, Effect, Train, absorb, apply_update
from walktalk.protocols.machine import Machine, NetworkView, Protocol
from walktalk.protocols.mechanisms.tokens.traveller import (
    MODEL,
    PLAIN_MESSAGES,
    RESILIENT_MESSAGES,
    TRAVELLER,
    PlainTraveller,
    ResilientTraveller,
    TravellerRule,
)
from walktalk.protocols.self_description import InLabel, Law

BASE = "base"  # slot of b_v; x_v is in MODEL and y in TRAVELLER


@dataclass(frozen=True)
class Digest(Protocol):
    """All nodes train all the time, and a travelling model gathers what each has learned since its last visit.

    Args:
        start: the node where the travelling model begins.
        steps: local steps of a training; 0: as many as the study says.
        resilient: whether it survives failures; if left out, where there may be any.
        patience: seconds to wait for an answer at first, and for the travelling model as many for each node; after that
            it is known how long either takes.
    """

    start: Annotated[int, Ge(0), InLabel("-at{}")] = 0
    steps: Annotated[int, Ge(0)] = 0
    resilient: bool | None = None
    patience: Annotated[float, Gt(0), InLabel("")] = 4.0
    name: ClassVar[str] = "digest"
    elastic: ClassVar[bool] = True
    family: ClassVar[str] = "walks"
    title: ClassVar[str] = "DIGEST"
    description: ClassVar[str] = "All nodes train all the time; a travelling model gathers what each has learned."
    colour: ClassVar[str] = "#2F6F8F"
    conserves: ClassVar[tuple[Law, ...]] = ("once",)
    paper: ClassVar[str] = "Gholami and Seferoglu 2023"
    keeps: ClassVar[str] = "a model at every node and what it had from the travelling model last; that one travels"
    sends: ClassVar[str] = "one model a hop, while all nodes train"
    guarantees: ClassVar[str] = (
        "everything that a node learned is in the travelling model once, with weight 1/V; a rest for unlike nodes"
    )

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return RESILIENT_MESSAGES if self.resilient else PLAIN_MESSAGES

    @property
    def there_at_first(self) -> tuple[int, ...]:
        return (self.start,)

    def check(self, nodes: int) -> None:
        super().check(nodes)
        if self.start >= nodes:
            raise SpecError(f"start: there is no node {self.start}; allowed: 0 to {nodes - 1}")

    def machine(self, network_view: NetworkView) -> Machine:
        rule = Gathering(self.steps)
        if self.resilient:
            return ResilientTraveller(network_view, self.start, self.patience, rule)
        return PlainTraveller(network_view, self.start, rule)


class Gathering(TravellerRule):
    """Keeps x_v and b_v, and lets y gather their difference."""

    __slots__ = ("steps",)

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def begin(self, traveller: bool) -> list[Effect]:
        slots = (MODEL, BASE, TRAVELLER) if traveller else (MODEL, BASE)
        return [Combine(slot, {INITIAL: 1.0}) for slot in slots]

    def train(self) -> Effect:
        return Train(MODEL, steps=self.steps)

    def learn(self) -> Effect:
        return apply_update(MODEL)

    def gather(self, nodes: int) -> list[Effect]:
        return [absorb(TRAVELLER, TRAVELLER, 1.0 / nodes, MODEL, BASE), *self.adopt()]

    def adopt(self) -> list[Effect]:
        return [Combine(MODEL, {TRAVELLER: 1.0}), Combine(BASE, {TRAVELLER: 1.0})]

    def restart(self) -> Effect:
        return Combine(TRAVELLER, {BASE: 1.0})

    def forget(self) -> Effect:
        return Combine(BASE, {MODEL: 1.0})

    def rest(self, into: str) -> Effect:
        return Combine(into, {MODEL: 1.0, BASE: -1.0}, {MODEL: 1.0})

    def take_rest(self, slot: str) -> Effect:
        return Combine(MODEL, {MODEL: 1.0, slot: 1.0}, {MODEL: 1.0})
