"""What all asynchronous protocols with a server share: nobody waits for anybody but the server for its own answer.

A node trains from the server's model of some version, sends what came of it, gets the model of now and trains on. The
server takes in whatever comes, when it comes, its own trainings among it. How many versions it is behind is its
staleness. What is sent and what the server makes of it, a protocol says in an `Intake`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Gt

from walktalk.protocols.effects import AGGREGATE, INITIAL, MEMBER, Combine, Effect, Forget, Record, Send, Train
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.server import MODEL, ServerProtocol

START, RESULT = "start", "result"  # what a training began with, and what came of it
MESSAGES = {"result": Arrival("result/{sender}"), "model": Arrival("model/{sender}")}
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
class AsynchronousServer(ServerProtocol):
    """A protocol with a server, for which nobody waits but who has sent it something, that goes by an `Intake`."""

    @abstractmethod
    def intake(self) -> Intake:
        """What is sent up, and what becomes of it."""

    @abstractmethod
    def training(self) -> Train:
        """What every node does with the model in `START`."""

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return MESSAGES

    def machine(self, surroundings: Surroundings) -> Machine:
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
    """The server, or one of those around it."""

    __slots__ = ("around", "began", "intake", "server", "train", "version")

    def __init__(self, around: Surroundings, protocol: AsynchronousServer) -> None:
        self.around, self.server = around, protocol.server
        self.intake, self.train = protocol.intake(), protocol.training()
        self.version = 0  # of `MODEL`
        self.began = 0  # the version that the training under way began with

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received):
            return self._received(event)
        if isinstance(event, Trained):
            return self._trained(event)
        if isinstance(event, Started):
            record = [Record(AGGREGATE, 0, MODEL)] if self._is_server else []
            return [Combine(MODEL, {INITIAL: 1.0}), *record, *self._train_on()]
        return []

    @property
    def _is_server(self) -> bool:
        return self.around.node == self.server

    def _train_on(self) -> list[Effect]:
        self.began = self.version
        return [Record(MEMBER, self.around.node, MODEL), Combine(START, {MODEL: 1.0}), self.train]

    def _received(self, event: Received) -> list[Effect]:
        peer, message = event.sender, event.message
        if self._is_server != (message.kind == "result") or (not self._is_server and peer != self.server):
            raise ValueError(f"{peer} sends {message.kind!r} to this node")
        if self._is_server:
            if not 0 <= message.round <= self.version:
                raise ValueError(f"{peer} says that it trained version {message.round} of {self.version}")
            taken = self._take(event.slot, message.round)
            return [*taken, Forget(event.slot), Send(peer, Message("model", round=self.version), MODEL)]
        self.version = message.round
        return [Combine(MODEL, {event.slot: 1.0}), Forget(event.slot), *self._train_on()]

    def _trained(self, event: Trained) -> list[Effect]:
        result = self.intake.result()
        if self._is_server:
            return [result, *self._take(RESULT, self.began), *self._train_on()]
        return [result, Send(self.server, Message("result", round=self.began), RESULT)]

    def _take(self, slot: str, version: int) -> list[Effect]:
        effects, renewed = self.intake.take(slot, self.version - version)
        if not renewed:
            return effects
        self.version += 1
        return [*effects, Record(AGGREGATE, 0, MODEL)]
