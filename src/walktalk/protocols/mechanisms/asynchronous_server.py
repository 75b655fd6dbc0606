"""A server that takes in results as they come: nobody waits for anybody but the server for its own answer.

A node trains from the server's model of some version, sends what came of it, gets the model of now and trains on. The
server takes in whatever comes, when it comes, its own trainings among it. How many versions a result is behind is its
staleness. What is sent and what the server makes of it, an algorithm says in an `Intake`.

Results are numbered by who sends them, and one that comes again is answered again and not taken in again. So where
nodes and messages are lost, a node that has no answer for long asks again, and so does one that finds the server back.
One that comes without a model of its own asks for the server's first. One that leaves for good waits until its last
result is answered. The server itself cannot be replaced: while it is dead all wait.

The server is in the middle of a star, or at the root of a tree, along which `Relay` hands results and answers on.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Gt

from walktalk.protocols.effects import (
    AGGREGATE,
    INITIAL,
    MEMBER,
    Arrival,
    Combine,
    Effect,
    Forget,
    Message,
    Record,
    Send,
    SetTimer,
    Train,
)
from walktalk.protocols.events import (
    Event,
    Leaving,
    NetworkChanged,
    PeerFound,
    PeerLost,
    Received,
    Rejoined,
    Started,
    TimerFired,
    Trained,
)
from walktalk.protocols.machine import Context, Machine, NetworkView
from walktalk.protocols.mechanisms.attendance import MOST_DOUBLINGS, Arrivals
from walktalk.protocols.mechanisms.server import MODEL, NEW_LIFE, NOBODY, TreeServerProtocol
from walktalk.protocols.wrappers.wrapped import WrappedNode

START, RESULT = "start", "result"  # what a training began with, and what came of it
ASK = "ask"  # kind of a message: send me your model, I have none
ROOT = "root"  # kind of a message on a tree: this node knows the way to the server; or with round 1: who does?
MESSAGES = {"result": Arrival("result/{sender}"), "model": Arrival("model/{sender}")}
TREE_MESSAGES = {ROOT: Arrival(), "result": Arrival("result/{walk}"), "model": Arrival("model/{walk}")}
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
    """What a node sends up after a training, and what the server makes of it."""

    __slots__ = ()

    @abstractmethod
    def result(self) -> Combine:
        """Set `RESULT`, when a training from `START` is done, to what is sent up."""

    @abstractmethod
    def receive(self, slot: str, late: int) -> tuple[list[Effect], bool]:
        """At the server: take in a result that is so many versions late; and whether `MODEL` has a new version."""


@dataclass(frozen=True)
class AsynchronousServer(TreeServerProtocol):
    """A protocol with a server that takes in results as they come, by an `Intake`."""

    @abstractmethod
    def intake(self) -> Intake:
        """What is sent up, and what becomes of it."""

    @abstractmethod
    def training(self) -> Train:
        """What every node does with the model in `START`."""

    @property
    def messages(self) -> Mapping[str, Arrival]:
        models = TREE_MESSAGES if self.tree else MESSAGES
        return {**models, ASK: Arrival()} if self.resilient else models

    def machine(self, network_view: NetworkView) -> Machine:
        node = AsynchronousNode(network_view, self)
        return Relay(node, network_view, self.server) if self.tree else node


@dataclass(frozen=True)
class DampedServer(AsynchronousServer):
    """A server that takes in results as they come, those that are late with less weight.

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
        """How much less a late result counts, s(τ)."""
        return Damping(self.staleness, self.a, self.b)


class AsynchronousNode(Machine):
    """The server, or a node that trains for it."""

    __slots__ = (
        "answers", "around", "asked", "began", "empty", "intake", "leaving", "sent", "server", "taken", "train",
        "training", "tries", "version",
    )  # fmt: skip

    def __init__(self, around: NetworkView, protocol: AsynchronousServer) -> None:
        self.around, self.server = around, protocol.server
        self.intake, self.train = protocol.intake(), protocol.training()
        self.version = 0  # of `MODEL`
        self.began = 0  # the version that the training under way began with
        self.sent = 0  # results of this node
        self.asked: float | None = None  # since when the server's answer is awaited
        self.tries = 0
        self.answers = Arrivals(protocol.patience / 4, 0.0) if protocol.resilient else None  # how long those take
        self.taken: dict[int, int] = {}  # at the server: node -> its last result that was taken in
        self.empty = False  # whether it has no model of its own yet
        self.training, self.leaving = False, False

    def handle(self, event: Event, context: Context) -> list[Effect]:
        match event:
            case Received():
                return self._asked_for(event) if self.is_server else self._answered(event, context.now)
            case Trained():
                return self._trained(context.now)
            case Started(late) if late and not self.is_server and self.answers is not None:
                self.empty, self.asked = True, context.now
                return self._ask()
            case Started():
                record = [Record(AGGREGATE, 0, MODEL)] if self.is_server else []
                return [Combine(MODEL, {INITIAL: 1.0}), *record, *self._train_on()]
            case Rejoined(memory):
                return self._remember(memory, context.now)
            case TimerFired() | PeerFound(self.server):
                return self._ask_again() if self.asked is not None else []
            case NetworkChanged(around):
                self.around = around
            case Leaving():
                self.leaving = True
        return []

    @property
    def is_server(self) -> bool:
        """Whether this node is the server."""
        return self.around.node == self.server

    def may_go(self) -> bool:
        """When its last result is answered."""
        return self.empty or (not self.training and self.asked is None)

    def _train_on(self) -> list[Effect]:
        self.began, self.asked, self.training = self.version, None, not self.leaving
        train: list[Effect] = [Combine(START, {MODEL: 1.0}), self.train] if self.training else []
        return [Record(MEMBER, self.around.node, MODEL), *train]

    def _trained(self, now: float) -> list[Effect]:
        result, self.training = self.intake.result(), False
        if self.is_server:
            return [result, *self._receive(RESULT, self.began), *self._train_on()]
        self.sent, self.asked, self.tries = self.sent + 1, now, 0
        return [result, *self._ask()]

    # -- around the server -------------------------------------------------------------------------------------------

    def _ask(self) -> list[Effect]:
        """Send the result, or that there is none yet; the answer is the model of now."""
        message = Message(ASK if self.empty else "result", round=self.began, term=self.sent)
        send = Send(self.server, message, "" if self.empty else RESULT, again=self.tries > 0)
        if self.answers is None:
            return [send]
        return [send, SetTimer(ASK, self.answers.patience * 2.0 ** min(self.tries, MOST_DOUBLINGS))]

    def _ask_again(self) -> list[Effect]:
        self.tries += 1
        return self._ask()

    def _answered(self, event: Received, now: float) -> list[Effect]:
        if event.sender != self.server or event.message.kind != "model":
            raise ValueError(f"{event.sender} sends {event.message.kind!r} to this node")
        if self.asked is None or (event.message.term != self.sent and not self.empty):
            return [Forget(event.slot)]
        if self.answers is not None and not self.tries:
            self.answers.observe(now - self.asked)
        self.version, self.sent, self.empty = event.message.round, event.message.term, False
        return [Combine(MODEL, {event.slot: 1.0}), Forget(event.slot), *self._train_on()]

    # -- the server --------------------------------------------------------------------------------------------------

    def _asked_for(self, event: Received) -> list[Effect]:
        """Take a result in, and answer with the model of now."""
        peer, message = event.sender, event.message
        if message.kind not in ("result", ASK) or peer == self.server or not self.around.knows(peer):
            raise ValueError(f"{peer} sends {message.kind!r} to the server")
        if message.kind == ASK:  # its results are numbered from the last one on that came of an earlier life
            return [Send(peer, Message("model", round=self.version, term=self.taken.get(peer, 0)), MODEL)]
        taken: list[Effect] = []
        if message.term > self.taken.get(peer, 0):
            self.taken[peer] = message.term
            taken = self._receive(event.slot, message.round)
        answer = Message("model", round=self.version, term=message.term)
        return [*taken, Forget(event.slot), Send(peer, answer, MODEL)]

    def _receive(self, slot: str, version: int) -> list[Effect]:
        late = max(0, self.version - version)  # a server that is back may be at an earlier one
        effects, renewed = self.intake.receive(slot, late)
        if not renewed:
            return effects
        self.version += 1
        return [*effects, Record(AGGREGATE, 0, MODEL)]

    # -- from one life to the next -----------------------------------------------------------------------------------

    def keepsake(self) -> bytes:
        if self.empty:
            return b""
        pairs = [number for pair in self.taken.items() for number in pair]
        return struct.pack(f"<{2 + len(pairs)}I", self.version, self.sent, *pairs)

    def _remember(self, memory: bytes, now: float) -> list[Effect]:
        """Go on from an earlier life's keepsake. What came after that was made has other numbers.

        One that was torn says nothing; one without a word is of a node that had no model yet.
        """
        if not memory and not self.is_server and self.answers is not None:
            self.empty, self.asked = True, now
            return self._ask()
        if len(memory) >= 8 and not len(memory) % 8:
            self.version, sent, *pairs = struct.unpack(f"<{len(memory) // 4}I", memory)
            self.sent = sent + NEW_LIFE
            self.taken = dict(zip(pairs[::2], pairs[1::2], strict=True))
        return self._train_on()


class Relay(WrappedNode):
    """Hands results and answers on along a tree; the node inside believes that it has a link with the server.

    The server says at first that it is the root, which goes down the whole tree: so everybody knows its parent. Every
    message says in `walk`, counted from 1, whose result it is, or whose answer. An answer goes back the way that the
    result came. What is on the way lies in a slot of its own at every node that it passes. Where a node does not know
    the way, because it or those around it were lost, it asks its neighbours; what it cannot hand on is asked for again.
    """

    __slots__ = ("around", "cut", "held", "parent", "routes", "server")

    def __init__(self, inner: Machine, around: NetworkView, server: int) -> None:
        super().__init__(inner)
        self.around, self.server = around, server
        self.parent = NOBODY  # at the server, and until the root is known
        self.cut: set[int] = set()  # neighbours that are lost
        self.routes: dict[int, int] = {}  # node below this one -> the child that is on the way to it
        self.held: list[Send] = []  # what is to be sent up once the parent is known

    @property
    def is_server(self) -> bool:
        """Whether this node is the root."""
        return self.around.node == self.server

    @property
    def lost(self) -> bool:
        """Whether it does not know the way to the root."""
        gone = self.parent not in self.around.neighbours or self.parent in self.cut | self.around.leaving
        return gone and not self.is_server

    def handle(self, event: Event, context: Context) -> list[Effect]:
        told: list[Effect] = []
        match event:
            case Received():
                return self._received(event, context)
            case PeerLost(peer):
                self.cut.add(peer)
            case PeerFound(peer):
                self.cut.discard(peer)
                told = [] if self.lost or peer == self.parent else [Send(peer, Message(ROOT))]
            case NetworkChanged(around):
                self.cut = {
                    peer for peer in around.neighbours if peer in self.cut or peer not in self.around.neighbours
                }
                self.around = around
            case Started() if self.is_server:
                told = self._call()
        return [*told, *self.changed(self.inner.handle(event, context))]

    def changed(self, effects: list[Effect]) -> list[Effect]:
        done: list[Effect] = []
        for effect in effects:
            done += self._sent(effect) if isinstance(effect, Send) else (effect,)
        return done

    def _sent(self, effect: Send) -> list[Effect]:
        """A message of the node inside, which goes to the next node on the way."""
        if self.is_server:
            return [effect._replace(to=self.routes[effect.to], message=effect.message._replace(walk=effect.to + 1))]
        up = effect._replace(to=self.parent, message=effect.message._replace(walk=self.around.node + 1))
        if not self.lost:
            return [up]
        self.held = [up]
        return self._call(is_question=True) if effect.again else []

    def _call(self, is_question: bool = False) -> list[Effect]:
        """Let all below know where the root is; or ask all neighbours for it."""
        there = [peer for peer in self.around.neighbours if peer not in self.cut and peer != self.parent]
        return [Send(peer, Message(ROOT, round=int(is_question))) for peer in there]

    def _received(self, event: Received, context: Context) -> list[Effect]:
        sender, kind, node = event.sender, event.message.kind, event.message.walk - 1
        if sender not in self.around.neighbours:
            raise ValueError(f"{sender} is no neighbour")
        if kind == ROOT:
            return self._rooted(sender, is_question=event.message.round == 1)
        if not self.around.knows(node) or (self.is_server and (kind == "model" or node == self.server)):
            raise ValueError(f"{sender} hands on {kind!r} of node {node}")
        forget: list[Effect] = [Forget(event.slot)] if event.slot else []
        if kind == "model":
            if node == self.around.node:
                return self.changed(self.inner.handle(event._replace(sender=self.server), context))
            below = self.routes.get(node, NOBODY)
            known = below in self.around.neighbours and below != sender
            return [*([Send(below, event.message, event.slot)] if known else []), *forget]
        if node == self.around.node or sender == self.parent:
            raise ValueError(f"{sender} hands on {kind!r} of node {node}, which is above it")
        self.routes[node] = sender
        if self.is_server:
            return self.changed(self.inner.handle(event._replace(sender=node), context))
        return forget if self.lost else [Send(self.parent, event.message, event.slot), *forget]

    def _rooted(self, sender: int, is_question: bool) -> list[Effect]:
        if is_question:
            return [] if self.lost or sender == self.parent else [Send(sender, Message(ROOT))]
        if not self.lost:
            return []
        self.parent = sender
        held, self.held = [one._replace(to=sender) for one in self.held], []
        return [*self._call(), *held]
