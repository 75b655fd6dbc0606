"""DIGEST, with one stream: all nodes train all the time, and a travelling model gathers what they learned.

Gholami and Seferoglu, "DIGEST: fast and communication efficient decentralized learning with local updates" (2023).
Every node trains its own model x_v again and again. When the travelling model y is there and a training ends:

    y ← y + (x_v − b_v) / V,    b_v what the node had from y when it was there last
    x_v ← y,  b_v ← y

So y is x_0 and 1/V of everything that any node had learned by its last visit, counted once. It goes on by the paper's
P; where that keeps it in place it waits for the next training. One model a hop, V trainings meanwhile. Nodes drift
apart between two visits, so unlike nodes leave a rest, as with local SGD. The abstract was read; the rule is from
memory of the paper. Several streams, which the paper has too, are not here.

The node here is for a world without failures; `resilient_digest` is the same for a world with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt

from walktalk.chains import metropolis_step
from walktalk.errors import SpecError
from walktalk.protocols.effects import Effect, Forget, Send, apply_update
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Protocol, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.self_description import InLabel, Law
from walktalk.protocols.walks.digest_visits import KIND, MODEL, TRAVELLER, begun, gathered, trains_on
from walktalk.protocols.walks.resilient_digest import MESSAGES, ResilientDigest


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
        return MESSAGES if self.resilient else {KIND: Arrival(TRAVELLER)}

    def check(self, nodes: int) -> None:
        super().check(nodes)
        if self.start >= nodes:
            raise SpecError(f"start: there is no node {self.start}; allowed: 0 to {nodes - 1}")

    def machine(self, surroundings: Surroundings) -> Machine:
        if self.resilient:
            return ResilientDigest(surroundings, self.start, self.steps, self.patience)
        return DigestNode(surroundings, self.start, self.steps)


class DigestNode(Machine):
    """Any node."""

    __slots__ = ("around", "here", "steps", "visits")

    def __init__(self, around: Surroundings, start: int, steps: int) -> None:
        self.around, self.steps = around, steps
        self.here = around.node == start  # whether the travelling model is
        self.visits = 0  # of the travelling model to any node, when it came here: the latest is what counts

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Started):
            return [*begun(self.here), *self._train()]
        if isinstance(event, Received):
            self.here, self.visits = True, event.message.round
        if isinstance(event, Trained):
            return [apply_update(MODEL), *(self._gather(outside) if self.here else ()), *self._train()]
        return []

    def _train(self) -> list[Effect]:
        return trains_on(self.around.node, self.steps)

    def _gather(self, outside: Outside) -> list[Effect]:
        around = self.around
        self.visits += 1
        effects = gathered(around.nodes, self.visits)
        to = metropolis_step(around.node, len(around.neighbours), around.neighbours, around.degrees, outside.random)
        if to == around.node:
            return effects
        self.here = False
        return [*effects, Send(to, Message(KIND, walk=1, round=self.visits), TRAVELLER), Forget(TRAVELLER)]
