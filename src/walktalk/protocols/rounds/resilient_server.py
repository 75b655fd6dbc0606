"""Rounds with a server where nodes and messages are lost: a round is made of those whose results are there.

The server sends its model to all that are not known to be lost, and waits for their results; not for those that die,
that say that the model did not come whole, whose result is known to be lost, or that take longer than others ever did
(`attendance`). Who was left out for being late is sent the model of every round all the same. A node that is in the
middle of a training when the next model comes drops what it has, and goes on with the new one. The server itself cannot
be replaced: while it is dead nothing goes on, and when it is back it begins a new round.
"""

from __future__ import annotations

import struct

from walktalk.protocols.attendance import Attendance
from walktalk.protocols.effects import AGGREGATE, INITIAL, MEMBER, Combine, Effect, Forget, Record, Send
from walktalk.protocols.events import Event, PeerFound, PeerLost, Received, Rejoined, Started, TimerFired, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.rounds.server_rule import ServerRule, gathered
from walktalk.protocols.server import MODEL

ABSENT = "absent"  # kind of a message: what this round needs did not come whole, so do not wait
ABSENCE = {ABSENT: Arrival()}
NEW_LIFE = 2**16  # by how much the rounds of a server that comes back are higher than any that it may have begun


def resilient_node(around: Surroundings, rule: ServerRule, server: int, patience: float) -> Machine:
    """The server, or one of those around it."""
    return ResilientServer(around, rule, patience) if around.node == server else ResilientClient(around, rule, server)


class ResilientServer(Machine):
    """The server, which trains, too."""

    __slots__ = ("around", "attendance", "came", "out", "round", "rule", "samples", "trained")

    def __init__(self, around: Surroundings, rule: ServerRule, patience: float) -> None:
        self.around, self.rule = around, rule
        self.round, self.trained = 0, False
        self.came: set[tuple[str, int]] = set()  # slots of this round that are here, and of whom
        self.samples: dict[int, int] = {around.node: around.samples}  # node -> how much data it has
        self.out: set[int] = set()  # not awaited in this round
        self.attendance = Attendance(patience)

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        match event:
            case Received():
                return [*self._take(event), *self._gather(outside.now)]
            case Trained():
                self.trained = True
                learned = self.rule.learn(event)
                return [*learned, self.attendance.wait(outside.now), *self._gather(outside.now)]
            case TimerFired():
                return self._too_late(outside.now)
            case PeerLost(peer):
                self.attendance.lost(peer)
                return self._gather(outside.now)
            case PeerFound(peer):
                self.attendance.cut.discard(peer)
                self.out.add(peer)  # it has nothing of this round
                return []
            case Started():
                return [Combine(MODEL, {INITIAL: 1.0}), *self.rule.begin(), *self._begin_round()]
            case Rejoined(memory):
                self.round = int.from_bytes(memory, "little") + NEW_LIFE
                return self._begin_round()
        return []

    def keepsake(self) -> bytes:
        return self.round.to_bytes(8, "little")

    def missed(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """Its result is lost, or its word that there is none."""
        if message.round == self.round:
            self.out.add(sender)
        return self._gather(outside.now)

    def refused(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """What is no model is as good as lost."""
        return self.missed(sender, message, outside)

    @property
    def _others(self) -> list[int]:
        return [peer for peer in range(self.around.nodes) if peer != self.around.node]

    def _begin_round(self) -> list[Effect]:
        there = [peer for peer in self._others if peer not in self.attendance.cut]
        message = [(slot, Message(f"{slot}_down", round=self.round)) for slot in self.rule.down]
        sends = [Send(to, said, slot) for to in there for slot, said in message]
        ready, train = self.rule.work()
        return [Record(AGGREGATE, 0, MODEL), *sends, Record(MEMBER, self.around.node, MODEL), *ready, train]

    def _take(self, event: Received) -> list[Effect]:
        peer, message = event.sender, event.message
        slot = message.kind.removesuffix("_up")
        if peer not in self._others or (message.kind != ABSENT and slot not in self.rule.up):
            raise ValueError(f"{peer} sends {message.kind!r} to the server")
        self.attendance.speaks(peer)
        if message.kind == ABSENT:
            if message.round == self.round:
                self.out.add(peer)
            return []
        if message.round != self.round:
            return [Forget(event.slot)]
        self.samples[peer] = struct.unpack("<I", message.note)[0]
        self.came.add((slot, peer))
        return []

    def _is_whole(self, peer: int) -> bool:
        return all((slot, peer) in self.came for slot in self.rule.up)

    def _missing(self) -> list[int]:
        """Whose results are awaited."""
        out = self.attendance.out | self.out
        return [peer for peer in self._others if peer not in out and not self._is_whole(peer)]

    def _too_late(self, now: float) -> list[Effect]:
        missing = self._missing() if self.trained else []
        return [*self.attendance.leave_out(missing, self.round), *self._gather(now)]

    def _gather(self, now: float) -> list[Effect]:
        if not self.trained or self._missing():
            return []
        self.attendance.complete(now)
        whole = [peer for peer in self._others if self._is_whole(peer)]
        parts, shares = gathered(self.rule, self.around, whole, self.samples)
        forget = [Forget(f"{slot}_up/{peer}") for slot, peer in sorted(self.came)]
        self.came, self.out = set(), set()
        self.round, self.trained = self.round + 1, False
        return [*self.rule.gather(parts, shares), *forget, *self._begin_round()]


class ResilientClient(Machine):
    """One of those around the server."""

    __slots__ = ("around", "arrived", "busy", "round", "rule", "server")

    def __init__(self, around: Surroundings, rule: ServerRule, server: int) -> None:
        self.around, self.rule, self.server = around, rule, server
        self.round, self.busy = -1, False  # the round of the last training, and whether that is under way
        self.arrived: dict[str, int] = {}  # slot -> the round of which it came last

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        match event:
            case Received():
                return self._take(event)
            case Trained():
                return self._trained(event)
            case Started():
                return [Combine(MODEL, {INITIAL: 1.0}), *self.rule.begin()]
        return []

    def missed(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """The server need not wait for this node."""
        return [Send(self.server, Message(ABSENT, round=message.round))] if sender == self.server else []

    def refused(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """What is no model is as good as lost."""
        return self.missed(sender, message, outside)

    def _take(self, event: Received) -> list[Effect]:
        slot = event.message.kind.removesuffix("_down")
        if event.sender != self.server or slot not in self.rule.down:
            raise ValueError(f"{event.sender} sends {event.message.kind!r} to this node")
        self.arrived[slot] = event.message.round
        return self._follow()

    def _follow(self) -> list[Effect]:
        """Once all of a new round is here, train on it."""
        rounds = {self.arrived.get(slot, -1) for slot in self.rule.down}
        if self.busy or len(rounds) > 1 or self.round in rounds:
            return []
        (self.round,), self.busy = rounds, True
        came = {slot: f"{slot}_down/{self.server}" for slot in self.rule.down}
        take: list[Effect] = [Combine(slot, {of: 1.0}) for slot, of in came.items()]
        ready, train = self.rule.work()
        forget = [Forget(of) for of in came.values()]
        return [*take, *forget, Record(MEMBER, self.around.node, MODEL), *ready, train]

    def _trained(self, event: Trained) -> list[Effect]:
        self.busy = False
        if any(number != self.round for number in self.arrived.values()):  # the server has gone on
            return self._follow()
        note = struct.pack("<I", self.around.samples)
        sends = [Send(self.server, Message(f"{s}_up", round=self.round, note=note), s) for s in self.rule.up]
        return [*self.rule.learn(event), *sends]
