"""The reference line: one node that has everybody's data. Nothing is sent, nothing is mixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from walktalk.protocols.effects import AGGREGATE, INITIAL, MEMBER, Combine, Effect, Record, Train, apply_update
from walktalk.protocols.events import Event, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Protocol, Surroundings
from walktalk.protocols.message import Arrival

MODEL = "model"


@dataclass(frozen=True)
class Centralized(Protocol):
    """Node 0 trains alone on the union of all data."""

    name: ClassVar[str] = "centralized"
    simulator_only: ClassVar[bool] = True  # on real peers data never leaves its node
    pools_data: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return "centralized"

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return {}

    def active_models(self, nodes: int) -> int:
        return 1

    def machine(self, surroundings: Surroundings) -> Machine:
        return LoneTrainer(active=surroundings.node == 0)


class LoneTrainer(Machine):
    """Node 0 trains on and on; the others have nothing to do."""

    __slots__ = ("active",)

    def __init__(self, active: bool) -> None:
        self.active = active

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if not self.active or not isinstance(event, (Started, Trained)):
            return []
        into = Combine(MODEL, {INITIAL: 1.0}) if isinstance(event, Started) else apply_update(MODEL)
        return [into, Record(MEMBER, 0, MODEL), Record(AGGREGATE, 0, MODEL), Train(MODEL)]
