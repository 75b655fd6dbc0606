"""What all asynchronous protocols with a server share: nobody waits for anybody but the server for its own answer.

A node trains from the server's model of some version, sends what came of it, gets the model of now and trains on. The
server takes in whatever comes, when it comes, its own trainings among it. How many versions it is behind is its
staleness. What is sent and what the server makes of it, a protocol says in an `Intake`.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Gt

from walktalk.protocols.arrivals import MOST_DOUBLINGS, Arrivals
from walktalk.protocols.asynchronous.tree_server import TREE_MESSAGES, HandingOn, with_links_to_all
from walktalk.protocols.effects import (
    AGGREGATE,
    INITIAL,
    MEMBER,
    Combine,
    Effect,
    Forget,
    Record,
    Send,
    SetTimer,
    Train,
)
from walktalk.protocols.events import Event, PeerFound, Received, Rejoined, Started, TimerFired, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.server import MODEL, TreeServerProtocol

START, RESULT = "start", "result"  # what a training began with, and what came of it
MESSAGES = {"result": Arrival("result/{sender}"), "model": Arrival("model/{sender}")}
NEW_LIFE = 2**16  # by how much the numbers of one that comes back are higher than any that it may have used
Staleness: TypeAlias = Literal["constant", "polynomial", "hinge"]


class Damping:
    """How much less a result counts that is so many versions late: s(τ) of FedAsync, 1 for none.

    Args:
        kind: "constant", always 1; "polynomial", (1 + τ)^−a; "hinge", 1 up to τ = b, then 1/(1 + a (τ − b)).
        a: how fast it falls.
        b: up to where it does not, for "hinge".
    """

    __slots__ = ("a", "b", "kind")

    def __init__(self, kind: Staleness, a: float, b: int) -> None:
        self.kind, self.a, self.b = kind, a, b

    def __call__(self, late: int) -> float:
        if self.kind == "polynomial":
            return float((1.0 + late) ** -self.a)
        if self.kind == "hinge" and late > self.b:
            return 1.0 / (1.0 + self.a * (late - self.b))
        return 1.0


class Intake(ABC):
    """What is sent up, and what becomes of it."""

    __slots__ = ()

    @abstractmethod
    def result(self) -> Combine:
        """Set `RESULT`, when a training from `START` is done, to what is sent up."""

    @abstractmethod
    def take(self, slot: str, late: int) -> tuple[list[Effect], bool]:
        """At the server: take in a result that is so many versions late; and whether `MODEL` has a new version."""


@dataclass(frozen=True)
class AsynchronousServer(TreeServerProtocol):
    """A protocol with a server, for which nobody waits but who has sent it something, that goes by an `Intake`."""

    @abstractmethod
    def intake(self) -> Intake:
        """What is sent up, and what becomes of it."""

    @abstractmethod
    def training(self) -> Train:
        """What every node does with the model in `START`."""

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return TREE_MESSAGES if self.tree else MESSAGES

    def machine(self, surroundings: Surroundings) -> Machine:
        if self.tree:
            inner = AsynchronousNode(with_links_to_all(surroundings), replace(self, resilient=False))
            return HandingOn(inner, surroundings, self.server)
        return AsynchronousNode(surroundings, self)


@dataclass(frozen=True)
class DampedServer(AsynchronousServer):
    """One in which what is late counts less.

    Args:
        staleness: how what is late counts less: "constant", it does not; "polynomial", (1 + τ)^−a for τ versions;
            "hinge", not up to b versions, then 1/(1 + a (τ − b)).
        a: how fast it counts less.
        b: up to how many versions it does not, for "hinge".
    """

    staleness: Staleness = "polynomial"
    a: Annotated[float, Gt(0)] = 0.5
    b: Annotated[int, Ge(0)] = 4

    @property
    def damping(self) -> Damping:
        """s(τ)."""
        return Damping(self.staleness, self.a, self.b)


class AsynchronousNode(Machine):
    """The server, or one of those around it.

    Results are numbered by who sends them, and one that comes again is answered again and not taken in again. So where
    nodes and messages are lost, who has no answer for long asks again, and so does one that the server is back for.
    """

    __slots__ = (
        "answers",
        "around",
        "asked",
        "began",
        "intake",
        "sent",
        "server",
        "taken",
        "train",
        "tries",
        "version",
    )

    def __init__(self, around: Surroundings, protocol: AsynchronousServer) -> None:
        self.around, self.server = around, protocol.server
        self.intake, self.train = protocol.intake(), protocol.training()
        self.version = 0  # of `MODEL`
        self.began = 0  # the version that the training under way began with
        self.sent = 0  # results of this node
        self.asked: float | None = None  # since when the server's answer is awaited
        self.tries = 0
        self.answers = Arrivals(protocol.patience / 4, 0.0) if protocol.resilient else None  # how long those take
        self.taken: dict[int, int] = {}  # at the server: node -> its last result that was taken in

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        match event:
            case Received():
                return self._result(event) if self._is_server else self._answered(event, outside.now)
            case Trained():
                return self._trained(outside.now)
            case Started():
                record = [Record(AGGREGATE, 0, MODEL)] if self._is_server else []
                return [Combine(MODEL, {INITIAL: 1.0}), *record, *self._train_on()]
            case Rejoined(memory):
                self._remember(memory)
                return self._train_on()
            case TimerFired() | PeerFound(self.server):
                return self._ask_again() if self.asked is not None else []
        return []

    @property
    def _is_server(self) -> bool:
        return self.around.node == self.server

    def _train_on(self) -> list[Effect]:
        self.began, self.asked = self.version, None
        return [Record(MEMBER, self.around.node, MODEL), Combine(START, {MODEL: 1.0}), self.train]

    def _trained(self, now: float) -> list[Effect]:
        result = self.intake.result()
        if self._is_server:
            return [result, *self._take(RESULT, self.began), *self._train_on()]
        self.sent, self.asked, self.tries = self.sent + 1, now, 0
        return [result, *self._ask()]

    # -- around the server ----------------------------------------------------------------------------------------

    def _ask(self) -> list[Effect]:
        """Send the result; the answer is the model of now."""
        message = Message("result", round=self.began, term=self.sent)
        send = Send(self.server, message, RESULT, again=self.tries > 0)
        if self.answers is None:
            return [send]
        return [send, SetTimer("ask", self.answers.patience * 2.0 ** min(self.tries, MOST_DOUBLINGS))]

    def _ask_again(self) -> list[Effect]:
        self.tries += 1
        return self._ask()

    def _answered(self, event: Received, now: float) -> list[Effect]:
        if event.sender != self.server or event.message.kind != "model":
            raise ValueError(f"{event.sender} sends {event.message.kind!r} to this node")
        if self.asked is None or event.message.term != self.sent:
            return [Forget(event.slot)]
        if self.answers is not None and not self.tries:
            self.answers.observe(now - self.asked)
        self.version = event.message.round
        return [Combine(MODEL, {event.slot: 1.0}), Forget(event.slot), *self._train_on()]

    # -- the server -----------------------------------------------------------------------------------------------

    def _result(self, event: Received) -> list[Effect]:
        peer, message = event.sender, event.message
        if message.kind != "result" or peer not in self.around.neighbours:
            raise ValueError(f"{peer} sends {message.kind!r} to the server")
        taken: list[Effect] = []
        if message.term > self.taken.get(peer, 0):
            self.taken[peer] = message.term
            taken = self._take(event.slot, message.round)
        answer = Message("model", round=self.version, term=message.term)
        return [*taken, Forget(event.slot), Send(peer, answer, MODEL)]

    def _take(self, slot: str, version: int) -> list[Effect]:
        late = max(0, self.version - version)  # a server that is back may be at an earlier one
        effects, renewed = self.intake.take(slot, late)
        if not renewed:
            return effects
        self.version += 1
        return [*effects, Record(AGGREGATE, 0, MODEL)]

    # -- from one life to the next --------------------------------------------------------------------------------

    def keepsake(self) -> bytes:
        pairs = [number for pair in self.taken.items() for number in pair]
        return struct.pack(f"<{2 + len(pairs)}I", self.version, self.sent, *pairs)

    def _remember(self, memory: bytes) -> None:
        """An earlier life's keepsake; one that was torn says nothing. What came after it was made has other numbers."""
        if len(memory) < 8 or len(memory) % 8:
            return
        self.version, sent, *pairs = struct.unpack(f"<{len(memory) // 4}I", memory)
        self.sent = sent + NEW_LIFE
        self.taken = dict(zip(pairs[::2], pairs[1::2], strict=True))
