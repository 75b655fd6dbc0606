"""Rounds with a server at the root of a tree: what it sends is handed down, and what all make of it is added up.

Who gets something from its parent hands it to its children and trains. When it is done and all its children's are here
it sends its parent one mean of all that is below it and its own, and how much that counts for. So a round sends a model
down and one up along every link, whatever the tree, where a server with links to all sends and takes V − 1 itself; and
the server has the same mean. A node knows its parent when something comes from it first. Nothing of this survives
failures: behind one that is dead nobody is heard.
"""

from __future__ import annotations

import struct

from walktalk.protocols.effects import AGGREGATE, INITIAL, MEMBER, Combine, Effect, Forget, Record, Send
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Message
from walktalk.protocols.rounds.server_rule import ServerRule
from walktalk.protocols.server import MODEL

_COUNTS = struct.Struct("<QI")  # samples and nodes that a mean is of
NOBODY = -1


class TreeNode(Machine):
    """The server, or one of those below it."""

    __slots__ = ("around", "below", "came", "parent", "round", "rule", "server", "trained")

    def __init__(self, around: Surroundings, rule: ServerRule, server: int) -> None:
        self.around, self.rule, self.server = around, rule, server
        self.round, self.trained = 0, False
        self.parent = NOBODY  # at the server, and before anything has come
        self.came: set[tuple[str, int]] = set()  # slots of this round that are here, and of whom
        self.below: dict[int, tuple[int, int]] = {}  # child -> samples and nodes that its mean is of

    @property
    def is_server(self) -> bool:
        """Whether this node is it."""
        return self.around.node == self.server

    @property
    def children(self) -> list[int]:
        """All neighbours but the parent."""
        return [peer for peer in self.around.neighbours if peer != self.parent]

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received):
            return self._down(event) if event.message.kind.endswith("_down") else self._up(event)
        if isinstance(event, Trained):
            self.trained = True
            return [*self.rule.learn(event), *self._gather()]
        if isinstance(event, Started):
            begin: list[Effect] = [Combine(MODEL, {INITIAL: 1.0}), *self.rule.begin()]
            return [*begin, *self._begin_round()] if self.is_server else begin
        return []

    def _begin_round(self) -> list[Effect]:
        return [Record(AGGREGATE, 0, MODEL), *self._hand_down()]

    def _hand_down(self) -> list[Effect]:
        """What goes down is here: on with it, and train."""
        sends = [Send(to, Message(f"{s}_down", round=self.round), s) for to in self.children for s in self.rule.down]
        ready, train = self.rule.work()
        return [*sends, Record(MEMBER, self.around.node, MODEL), *ready, train]

    def _down(self, event: Received) -> list[Effect]:
        slot, peer = event.message.kind.removesuffix("_down"), event.sender
        if self.parent == NOBODY and not self.is_server:
            self.parent = peer
        if self.is_server or peer != self.parent or event.message.round != self.round:
            raise ValueError(f"{peer} sends {slot!r} of round {event.message.round} down in round {self.round}")
        self.came.add((slot, peer))
        if any((one, peer) not in self.came for one in self.rule.down):
            return []
        self.came -= {(one, peer) for one in self.rule.down}
        came = {one: f"{one}_down/{peer}" for one in self.rule.down}
        take: list[Effect] = [Combine(one, {of: 1.0}) for one, of in came.items()]
        return [*take, *(Forget(of) for of in came.values()), *self._hand_down()]

    def _up(self, event: Received) -> list[Effect]:
        slot, peer = event.message.kind.removesuffix("_up"), event.sender
        if peer == self.parent or event.message.round != self.round or (slot, peer) in self.came:
            raise ValueError(f"{peer} sends {slot!r} of round {event.message.round} up in round {self.round}")
        try:
            samples, nodes = _COUNTS.unpack(event.message.note)
        except struct.error as error:
            raise ValueError(f"no counts: {error}") from error
        if not 0 < nodes < self.around.nodes:
            raise ValueError(f"a mean of {nodes} of {self.around.nodes} nodes")
        self.below[peer] = samples, nodes
        self.came.add((slot, peer))
        return self._gather()

    def _gather(self) -> list[Effect]:
        """Once this node has trained and all is here from below: one mean, and up with it."""
        children = self.children
        if not self.trained or any((slot, peer) not in self.came for slot in self.rule.up for peer in children):
            return []
        counts = {NOBODY: (self.around.samples, 1), **{peer: self.below[peer] for peer in children}}
        means = [self._mean(slot, counts, by_samples=slot == self.rule.up[0]) for slot in self.rule.up]
        forget = [Forget(f"{slot}_up/{peer}") for slot in self.rule.up for peer in children]
        self.came.clear()
        self.trained = False
        number, self.round = self.round, self.round + 1
        if self.is_server:
            parts = {slot: {slot: 1.0} for slot in self.rule.up}
            return [*means, *forget, *self.rule.gather(parts, parts[self.rule.up[0]]), *self._begin_round()]
        note = _COUNTS.pack(*(sum(one[k] for one in counts.values()) for k in (0, 1)))
        sends = [Send(self.parent, Message(f"{s}_up", round=number, note=note), s) for s in self.rule.up]
        return [*means, *forget, *sends]

    def _mean(self, slot: str, counts: dict[int, tuple[int, int]], by_samples: bool) -> Combine:
        """This node's own and those from below, by how many nodes each is of; where the rule says so, by their data."""
        place = 0 if by_samples and self.rule.weighted else 1
        total = sum(one[place] for one in counts.values())
        named = {peer: slot if peer == NOBODY else f"{slot}_up/{peer}" for peer in counts}
        return Combine(slot, {named[peer]: one[place] / total for peer, one in counts.items()})
