"""What all protocols with a server share: it sends out, everybody trains, it gathers, round by round.

What is sent down and up and what is done with it, a protocol says in a `ServerRule`. The node here is for a world
without failures; `resilient_server` is the same for a world with them.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from walktalk.protocols.effects import AGGREGATE, INITIAL, MEMBER, Combine, Effect, Forget, Record, Send
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.rounds.resilient_server import ABSENCE, resilient_node
from walktalk.protocols.rounds.server_rule import ServerRule, gathered
from walktalk.protocols.rounds.tree_server import TreeNode
from walktalk.protocols.server import MODEL, TreeServerProtocol


@dataclass(frozen=True)
class ServerRounds(TreeServerProtocol):
    """A protocol with a server, in rounds, that goes by a `ServerRule`."""

    @abstractmethod
    def rule(self) -> ServerRule:
        """What it does in a round, for one node."""

    @property
    def messages(self) -> Mapping[str, Arrival]:
        rule = self.rule()
        kinds = [*(f"{slot}_down" for slot in rule.down), *(f"{slot}_up" for slot in rule.up)]
        models = {kind: Arrival(f"{kind}/{{sender}}") for kind in kinds}
        return {**models, **ABSENCE} if self.resilient and not self.tree else models

    def machine(self, surroundings: Surroundings) -> Machine:
        if self.tree:
            return TreeNode(surroundings, self.rule(), self.server)
        if self.resilient:
            return resilient_node(surroundings, self.rule(), self.server, self.patience)
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
        parts, shares = gathered(self.rule, self.around, self.others, self.samples)
        forget = [Forget(f"{up}_up/{peer}") for up in self.rule.up for peer in self.others]
        return [*self.rule.gather(parts, shares), *forget, *self._begin_round()]
