"""Models pushed to neighbours that do not answer: a node trains on and on, and waits for nobody.

Who waits for nobody does not miss anybody: neighbours that are lost are left out until they are back. One that joins in
the middle makes its first model of what is pushed to it. One that leaves for good pushes the outcome of its last
training, and goes. What is pushed, and what becomes of what comes, a `PushRule` says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from walktalk.protocols.effects import INITIAL, MEMBER, Combine, Effect, Record, SetTimer, Train, apply_update
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
from walktalk.protocols.machine import Context, Machine, NetworkView, Protocol
from walktalk.protocols.self_description import FIXED, Demand

MODEL = "model"
BEGIN = "begin"  # timer: nobody pushes anything to one that has joined
NO_MODEL = b"\0"  # what is remembered of a node that died before it had a model
LONGEST_WAIT = 100.0  # seconds that one that joins waits for its first model


class PushRule(ABC):
    """What an algorithm that pushes does with a node's models; the one that is trained and put out is in `MODEL`."""

    __slots__ = ("around", "cut")

    def __init__(self, around: NetworkView) -> None:
        self.around = around  # what the node knows of the network now
        self.cut: set[int] = set()  # neighbours that are lost

    def start(self) -> list[Effect]:
        """All nodes begin, with the initial model."""
        return []

    def prepare(self) -> list[Effect]:
        """A training is about to begin: what has come may be mixed in."""
        return []

    def train(self) -> Train:
        """What a node trains next, and from which slot."""
        return Train(MODEL)

    def learn(self) -> list[Effect]:
        """A training is done."""
        return [apply_update(MODEL)]

    @abstractmethod
    def push(self, peers: Sequence[int], context: Context) -> list[Effect]:
        """Send what these neighbours are to have."""

    @abstractmethod
    def receive(self, event: Received) -> list[Effect]:
        """Something has come from a neighbour; `ValueError` where it cannot be."""

    @abstractmethod
    def first(self) -> list[Effect]:
        """Make a first model of what has come; nothing, as long as that is not a whole one."""

    def forget(self, peer: int) -> list[Effect]:
        """A node is no neighbour any more."""
        return []

    def keepsake(self) -> bytes:
        """What a later incarnation must know; not `NO_MODEL`."""
        return b""

    def remember(self, memory: bytes) -> None:  # noqa: B027  # most have nothing to remember
        """Take up an earlier incarnation's keepsake."""


@dataclass(frozen=True)
class Pushes(Protocol):
    """An algorithm whose nodes push models to neighbours and wait for nobody; so they do not miss anybody either."""

    family: ClassVar[str] = "gossip"
    demands: ClassVar[tuple[Demand, ...]] = (FIXED,)
    survives_failures: ClassVar[bool] = True
    elastic: ClassVar[bool] = True

    @abstractmethod
    def rule(self, around: NetworkView) -> PushRule:
        """What a node does with its models."""

    def machine(self, network_view: NetworkView) -> Machine:
        return PushNode(self.rule(network_view))


class PushNode(Machine):
    """A node that trains on and on and pushes models to its neighbours."""

    __slots__ = ("empty", "leaving", "rule", "training")

    def __init__(self, rule: PushRule) -> None:
        self.rule = rule
        self.empty = False  # whether it has joined, and no model yet
        self.leaving = self.training = False

    def handle(self, event: Event, context: Context) -> list[Effect]:
        match event:
            case Received(sender):
                if sender not in self.rule.around.neighbours:
                    raise ValueError(f"{sender} is no neighbour")
                received = self.rule.receive(event)
                first = self.rule.first() if self.empty else []
                return [*received, *first, *(self._begin() if first else [])]
            case Trained():
                self.training = False
                return [*self.rule.learn(), self._record(), *self.rule.push(self._there(), context), *self._train_on()]
            case Started(late=False):
                return [Combine(MODEL, {INITIAL: 1.0}), *self.rule.start(), *self._begin()]
            case Rejoined(memory) if memory != NO_MODEL:
                self.rule.remember(memory)
                return self._begin()
            case Started() | Rejoined():
                self.empty = True
                return [SetTimer(BEGIN, LONGEST_WAIT)]
            case TimerFired():
                return [Combine(MODEL, {INITIAL: 1.0}), *self._begin()] if self.empty else []
            case _:
                return self._network(event)

    def _network(self, event: Event) -> list[Effect]:
        rule = self.rule
        match event:
            case PeerLost(peer):
                rule.cut.add(peer)
            case PeerFound(peer):
                rule.cut.discard(peer)
            case Leaving():
                self.leaving = True
            case NetworkChanged(around):
                before, rule.around = rule.around.neighbours, around
                new = {peer for peer in around.neighbours if peer not in before}
                rule.cut = (rule.cut | new) & set(around.neighbours)
                gone = [peer for peer in before if peer not in around.neighbours]
                return [effect for peer in gone for effect in rule.forget(peer)]
        return []

    def may_go(self) -> bool:
        """When its last training is done, and what it brought is pushed."""
        return not self.training

    def keepsake(self) -> bytes:
        return NO_MODEL if self.empty else self.rule.keepsake()

    def _there(self) -> list[int]:
        around = self.rule.around
        return [peer for peer in around.neighbours if peer not in self.rule.cut and peer not in around.leaving]

    def _record(self) -> Effect:
        return Record(MEMBER, self.rule.around.node, MODEL)

    def _begin(self) -> list[Effect]:
        self.empty = False
        return [self._record(), *self._train_on()]

    def _train_on(self) -> list[Effect]:
        if self.leaving or self.training:
            return []
        self.training = True
        prepared = self.rule.prepare()
        return [*prepared, self._record(), self.rule.train()] if prepared else [self.rule.train()]
