"""What all protocols with a server share: it sends out, everybody trains, it gathers, round by round.

What is sent down and up and what is done with it, a protocol says in a `ServerRule`.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from walktalk.protocols.effects import AGGREGATE, INITIAL, MEMBER, UPDATE, Combine, Effect, Forget, Record, Send, Train
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.server import CHANGE, MODEL, ServerProtocol


class ServerRule(ABC):
    """What a protocol does in a round: `down` are slots that all nodes have the server's of, `up` what each makes."""

    __slots__ = ()

    @property
    @abstractmethod
    def down(self) -> tuple[str, ...]:
        """The slots that the server sends out, `MODEL` first."""

    @property
    @abstractmethod
    def up(self) -> tuple[str, ...]:
        """The slots that everybody sends back."""

    @abstractmethod
    def begin(self) -> list[Effect]:
        """At every node, before the first round."""

    @abstractmethod
    def work(self) -> tuple[list[Effect], Train]:
        """At every node, when all that comes down is there: what is to be made ready, and the training."""

    @abstractmethod
    def learn(self, event: Trained) -> list[Effect]:
        """At every node: set the slots that go up."""

    @abstractmethod
    def gather(self, parts: Mapping[str, Mapping[str, float]], shares: Mapping[str, float]) -> list[Effect]:
        """At the server: bring what goes down up to date.

        - `parts`: for each slot that goes up, everybody's with equal weights.
        - `shares`: everybody's first slot with weights by how much data each has.
        """


class ChangesUp(ServerRule):
    """The rule of those that send the model down and what a training changed up; what the server makes of it differs.

    Args:
        train: what every node does in a round.
    """

    __slots__ = ("train",)

    def __init__(self, train: Train) -> None:
        self.train = train

    @property
    def down(self) -> tuple[str, ...]:
        return (MODEL,)

    @property
    def up(self) -> tuple[str, ...]:
        return (CHANGE,)

    def begin(self) -> list[Effect]:
        return []

    def work(self) -> tuple[list[Effect], Train]:
        return [], self.train

    def learn(self, event: Trained) -> list[Effect]:
        return [Combine(CHANGE, {UPDATE: 1.0})]


@dataclass(frozen=True)
class ServerRounds(ServerProtocol):
    """A protocol with a server, in rounds, that goes by a `ServerRule`."""

    @abstractmethod
    def rule(self) -> ServerRule:
        """What it does in a round, for one node."""

    @property
    def messages(self) -> Mapping[str, Arrival]:
        rule = self.rule()
        kinds = [*(f"{slot}_down" for slot in rule.down), *(f"{slot}_up" for slot in rule.up)]
        return {kind: Arrival(f"{kind}/{{sender}}") for kind in kinds}

    def machine(self, surroundings: Surroundings) -> Machine:
        return ServerNode(surroundings, self.rule(), self.server)


class ServerNode(Machine):
    """The server, or one of those around it."""

    __slots__ = ("around", "came", "round", "rule", "samples", "server", "trained")

    def __init__(self, around: Surroundings, rule: ServerRule, server: int) -> None:
        self.around, self.rule, self.server = around, rule, server
        self.round, self.trained = 0, False
        self.came: set[tuple[str, int]] = set()  # slots of this round that are here, and of whom
        self.samples: dict[int, int] = {around.node: around.samples}  # node -> how much data it has

    @property
    def is_server(self) -> bool:
        """Whether this node is it."""
        return self.around.node == self.server

    @property
    def others(self) -> list[int]:
        """All that a node hears: everybody, or the server alone."""
        everyone = [peer for peer in range(self.around.nodes) if peer != self.server]
        return everyone if self.is_server else [self.server]

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received):
            self._take(event)
            return self._gather() if self.is_server else self._follow()
        if isinstance(event, Trained):
            return self._trained(event)
        if isinstance(event, Started):
            begin: list[Effect] = [Combine(MODEL, {INITIAL: 1.0}), *self.rule.begin()]
            return [*begin, *self._begin_round()] if self.is_server else begin
        return []

    def _take(self, event: Received) -> None:
        message, slots = event.message, self.rule.up if self.is_server else self.rule.down
        slot = message.kind.removesuffix("_up").removesuffix("_down")
        if event.sender not in self.others or message.round != self.round or slot not in slots:
            raise ValueError(f"{event.sender} sends {message.kind!r} of round {message.round} in round {self.round}")
        if self.is_server:
            self.samples[event.sender] = struct.unpack("<I", message.note)[0]
        self.came.add((slot, event.sender))

    def _begin_round(self) -> list[Effect]:
        """The server sends out."""
        sends: list[Effect] = [
            Send(to, Message(f"{slot}_down", round=self.round), slot) for to in self.others for slot in self.rule.down
        ]
        return [Record(AGGREGATE, 0, MODEL), *sends, *self._work()]

    def _work(self) -> list[Effect]:
        ready, train = self.rule.work()
        return [Record(MEMBER, self.around.node, MODEL), *ready, train]

    def _follow(self) -> list[Effect]:
        """Once all has come down, train on it."""
        if len(self.came) < len(self.rule.down):
            return []
        self.came.clear()
        came = {slot: f"{slot}_down/{self.server}" for slot in self.rule.down}
        take: list[Effect] = [Combine(slot, {of: 1.0}) for slot, of in came.items()]
        return [*take, *(Forget(of) for of in came.values()), *self._work()]

    def _trained(self, event: Trained) -> list[Effect]:
        learned = self.rule.learn(event)
        if self.is_server:
            self.trained = True
            return [*learned, *self._gather()]
        note, number = struct.pack("<I", self.around.samples), self.round
        self.round += 1
        sends = [Send(self.server, Message(f"{s}_up", round=number, note=note), s) for s in self.rule.up]
        return [*learned, *sends]

    def _gather(self) -> list[Effect]:
        """Once all has come up, go to the next round."""
        if not self.trained or len(self.came) < len(self.others) * len(self.rule.up):
            return []
        self.came.clear()
        self.round, self.trained = self.round + 1, False
        slots = {up: {peer: f"{up}_up/{peer}" for peer in self.others} for up in self.rule.up}
        equal, total = 1.0 / self.around.nodes, sum(self.samples.values())
        parts = {up: dict.fromkeys([up, *of.values()], equal) for up, of in slots.items()}
        first = self.rule.up[0]
        named = {self.server: first, **slots[first]}
        shares = {named[node]: samples / total for node, samples in self.samples.items()}
        forget = [Forget(slot) for of in slots.values() for slot in of.values()]
        return [*self.rule.gather(parts, shares), *forget, *self._begin_round()]
