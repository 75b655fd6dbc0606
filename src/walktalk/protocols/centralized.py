"""The reference line: one node that has everybody's data. Nothing is sent, nothing is mixed.

    x ← x − η g(x), with batches of all data

What decentralized methods are compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from walktalk.protocols.effects import AGGREGATE, INITIAL, MEMBER, Arrival, Combine, Effect, Record, Train, apply_update
from walktalk.protocols.events import Event, Started, Trained
from walktalk.protocols.machine import Context, Machine, NetworkView, Protocol
from walktalk.protocols.self_description import Law, Runtime

MODEL = "model"


@dataclass(frozen=True)
class Centralized(Protocol):
    """Node 0 trains alone on the union of all data."""

    name: ClassVar[str] = "centralized"
    also_known_as: ClassVar[tuple[str, ...]] = ("sgd",)
    family: ClassVar[str] = "reference"
    paper: ClassVar[str] = "plain SGD"
    keeps: ClassVar[str] = "one model, and everybody's data"
    sends: ClassVar[str] = "nothing"
    guarantees: ClassVar[str] = "what SGD on the union of all data does"
    title: ClassVar[str] = "all data in one place"
    description: ClassVar[str] = "No network at all: one model is trained on everybody's data, to compare with."
    colour: ClassVar[str] = "#000000"
    conserves: ClassVar[tuple[Law, ...]] = ("once",)
    runtimes: ClassVar[tuple[Runtime, ...]] = ("sim",)  # on real peers data never leaves its node
    survives_failures: ClassVar[bool] = True  # what happens to the others does not touch it
    why_nodes_stay: ClassVar[str] = "one node alone trains, and has everybody's data from the start"
    pools_data: ClassVar[bool] = True
    means_of_models: ClassVar[bool] = True
    on_directed_graphs: ClassVar[bool] = True  # it uses none of the links

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return {}

    def active_models(self, nodes: int) -> int:
        return 1

    def machine(self, network_view: NetworkView) -> Machine:
        return LoneTrainer(active=network_view.node == 0)


class LoneTrainer(Machine):
    """Node 0 trains on and on; the others have nothing to do."""

    __slots__ = ("active",)

    def __init__(self, active: bool) -> None:
        self.active = active

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if not self.active or not isinstance(event, (Started, Trained)):
            return []
        into = Combine(MODEL, {INITIAL: 1.0}) if isinstance(event, Started) else apply_update(MODEL)
        return [into, Record(MEMBER, 0, MODEL), Record(AGGREGATE, 0, MODEL), Train(MODEL)]
