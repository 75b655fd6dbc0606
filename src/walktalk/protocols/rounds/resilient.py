"""Rounds where nodes and messages are lost: a round is mixed without what does not come.

A message is left out of a round when this node notices that it was lost, when the runtime says that its sender is lost,
when the sender is in a later round already, or when it is later than neighbours ever were (`attendance`). What a rule
makes of that is its own: an average leaves the weight with the node itself, RelaySGD counts what is in a sum. A node
that comes back, or lags behind, goes to the round of those that it hears, with the model that it has; what else it
knew (momenta, drifts, trackers) begins anew after a death.
"""

from __future__ import annotations

from walktalk.protocols.attendance import Attendance
from walktalk.protocols.effects import INITIAL, MEMBER, Combine, Effect, Forget, Note, Record
from walktalk.protocols.events import Event, PeerFound, PeerLost, Received, Rejoined, Started, TimerFired, Trained
from walktalk.protocols.machine import Machine, Outside
from walktalk.protocols.message import Message
from walktalk.protocols.rounds.meeting import MODEL, Meeting, Rule


class ResilientInRounds(Machine):
    """One node that goes by a rule and waits for nobody who is dead."""

    __slots__ = ("ahead", "attendance", "latest", "meeting", "node", "rule", "trained")

    def __init__(self, meeting: Meeting, rule: Rule, patience: float) -> None:
        around = meeting.around
        self.node, self.rule, self.meeting = around.node, rule, meeting
        self.trained = False
        self.latest: dict[int, int] = {}  # the highest round that was heard of each sender
        self.attendance = Attendance(patience, meeting.cut)
        two_way = around.rounds is None and around.heard is None  # then nobody goes on without this node's last
        self.ahead = 1 if two_way else around.nodes  # rounds that others may be ahead of a node that does not lag

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        match event:
            case Received():
                return self._received(event, outside.now)
            case Trained():
                self.trained = True
                learned = self.rule.learn(event, self.meeting)
                return [*learned, self.attendance.wait(outside.now), *self._finish(outside.now)]
            case TimerFired():
                return self._too_late(outside.now)
            case PeerLost(peer):
                self.attendance.lost(peer)
                return self._finish(outside.now)
            case PeerFound(peer):
                self.attendance.found(peer)
                return []
            case Started(late):
                return [Combine(MODEL, {INITIAL: 1.0}), *self._begin(late)]
            case Rejoined(memory):
                self.meeting.round = int.from_bytes(memory, "little")
                return self._begin(late=True)
            case _:  # of networks that change nobody tells it: it does not say that nodes may come and go
                return []

    def missed(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """The round goes on without it."""
        self.meeting.miss(sender, message)
        return self._finish(outside.now)

    def refused(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """What is no model is as good as lost."""
        return self.missed(sender, message, outside)

    def keepsake(self) -> bytes:
        return self.meeting.round.to_bytes(4, "little")

    def _begin(self, late: bool) -> list[Effect]:
        if late:
            self._wait_for_none()
        return [Record(MEMBER, self.node, MODEL), *self.rule.begin(), self.rule.work()]

    def _wait_for_none(self) -> None:
        """Until they speak: who took this node for dead has sent it nothing."""
        self.attendance.absent.update(range(self.meeting.around.nodes))

    def _received(self, event: Received, now: float) -> list[Effect]:
        peer, message, meeting = event.sender, event.message, self.meeting
        if not meeting.expects(peer, message):
            raise ValueError(f"{peer} does not meet this node in round {message.round}")
        self.latest[peer] = max(message.round, self.latest.get(peer, 0))
        caught_up = self._go_to(message.round) if message.round > meeting.round + self.ahead else []
        self.attendance.speaks(peer)
        if message.round < meeting.round:
            return [Forget(event.slot)]
        meeting.take(peer, message)
        return caught_up or self._finish(now)

    def _go_to(self, number: int) -> list[Effect]:
        """The others are ahead: join them with the model of now; a training under way counts for that round."""
        note, meeting = Note("catches_up", number=number), self.meeting
        self._wait_for_none()
        if not self.trained:
            return [*meeting.go_to(number), note]
        return [*self._mixed(), *meeting.go_to(number), note, *self._work()]

    def _missing(self) -> list[int]:
        """Senders of which something of this round may still come; one that is further sends it no more."""
        out, meeting = self.attendance.out, self.meeting
        return [p for p in meeting.awaited() if p not in out and self.latest.get(p, -1) <= meeting.round]

    def _too_late(self, now: float) -> list[Effect]:
        missing = sorted(set(self._missing())) if self.trained else []
        return [*self.attendance.leave_out(missing, self.meeting.round), *self._finish(now)]

    def _finish(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        while self.trained and not self._missing():
            self.attendance.complete(now)
            effects += self._mixed()
            further = self.rule.push_on(self.meeting)
            if further:  # another round before the next training
                self.trained = True
                further.append(self.attendance.wait(now))
            effects += further or self._work()
        return effects

    def _mixed(self) -> list[Effect]:
        """The end of a round, with what is there."""
        self.trained = False
        return [*self.rule.mix(self.meeting), *self.meeting.close()]

    def _work(self) -> list[Effect]:
        """The next training, of the model that the last round left."""
        return [Record(MEMBER, self.node, MODEL), self.rule.work()]
