"""Teleportation where nodes and messages are lost: what comes is averaged, and a model that is gone is made again.

A node averages what has come for its turn when nothing else of it can come, because it was lost or its sender is, or
when the rest is later than others ever were (`attendance`); weights are divided by their sum, which is one again. Where
nothing has come the turn is left out, which is told to those that wait for it (not where all that this node waited for
have told it so: that would go round for ever when all models are lost), and the model is made in the next round by
those that would have averaged with it: so models are lost for good only if all are at once. Then nobody hears of any,
and who has heard of none for LONG times as long as usual goes on with the one that it had last. Who hears of a later
round than its own goes there, and what comes for an earlier one is dropped: of several such beginnings the one that is
furthest is left.
"""

from __future__ import annotations

from collections.abc import Iterable

from walktalk.protocols.effects import INITIAL, Combine, Effect, Forget, Message, Note, Send, SetTimer
from walktalk.protocols.events import Event, PeerFound, PeerLost, Received, Rejoined, Started, TimerFired, Trained
from walktalk.protocols.gossip.teleporting import Places, TeleportNode, Tokens, token_slot
from walktalk.protocols.machine import Context
from walktalk.protocols.mechanisms.attendance import Arrivals, Attendance
from walktalk.protocols.mechanisms.meeting import MODEL

NOTHING = "nothing"  # kind of a message: the sender has no model for this round
SILENT = "silent"  # timer: nothing has been heard for so long that all models must be lost
LONG = 20.0  # times the mean time between two turns: by chance once in e²⁰, where turns are drawn at random


class ResilientTeleportNode(TeleportNode):
    """One node. What comes for a later turn than the next waits; when nothing comes for that one it is left out."""

    __slots__ = ("attendance", "empty", "gaps", "missing")

    def __init__(self, node: int, places: Places, tokens: Tokens, steps: int, patience: float) -> None:
        """`patience`: seconds to wait for those that are late, at first."""
        super().__init__(node, places, tokens, steps)
        self.attendance = Attendance(patience, self.cut)
        self.missing: dict[int, set[int]] = {}  # round -> whose message for it is known to be lost
        self.empty: dict[int, set[int]] = {}  # round -> who has, or had, no model for it
        self.gaps = Arrivals(patience / 4 * places.nodes / places.tokens, 0.0)  # between two turns

    def handle(self, event: Event, context: Context) -> list[Effect]:
        now = context.now
        match event:
            case Received():
                return [*self._heard(event), *self._go_on_at(now)]
            case Trained():
                self.gaps.arrived(now)
                return [*self._hand_on(), self._listen(), *self._go_on_at(now)]
            case TimerFired(name) if name == SILENT:
                return [self._listen()] if self.trains or self.came else self._begin_again()
            case TimerFired():
                return self._too_late(now)
            case PeerLost(peer):
                self.attendance.lost(peer)
                return self._go_on_at(now)
            case PeerFound(peer):
                self.attendance.found(peer)
                return []
            case Started(late):
                self.gaps.last = now
                return [Combine(MODEL, {INITIAL: 1.0}), *self._come(self.turn, late)]
            case Rejoined(memory):
                self.gaps.last = now
                return self._come(int.from_bytes(memory, "little"), late=True)
            case _:  # of networks that change nobody tells it: it does not say that nodes may come and go
                return []

    def keepsake(self) -> bytes:
        return self.turn.to_bytes(4, "little")

    def missed(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """A model is lost on its way: it is averaged without it."""
        if message.round >= max(self.turn, 1) and self._is_due(sender, message.round):
            self.missing.setdefault(message.round, set()).add(sender)
            self._told(sender, message)
        return self._go_on_at(context.now)

    def refused(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """What is no model is as good as lost."""
        return self.missed(sender, message, context)

    def _come(self, turn: int, late: bool) -> list[Effect]:
        """Take part from a turn on; who comes late has no part in the first round."""
        if turn == 0 and not late:
            return [*self._begin(), self._listen()]
        self.turn = self.places.turn_after(self.node, max(turn, 1) - 1)
        return [self._listen()]

    def _listen(self) -> Effect:
        return SetTimer(SILENT, LONG * max(self.gaps.mean, self.gaps.expected))

    def _begin_again(self) -> list[Effect]:
        """All models are lost: the last that was here goes on."""
        return [Note("begins_again", number=self.turn), *self._begin()]

    # -- waiting ----------------------------------------------------------------------------------------------------

    def _heard(self, event: Received) -> list[Effect]:
        sender, number = event.sender, event.message.round
        if not self._is_due(sender, number):
            raise ValueError(f"{sender} does not meet this node in round {number}")
        behind = [] if self.trains or number <= self.turn + self.places.tokens else self._catch_up(number)
        self.attendance.speaks(sender)
        nothing, past = event.message.kind == NOTHING, number < self.turn or (self.trains and number == self.turn)
        if past:
            return [] if nothing else [Forget(event.slot)]  # and it is not ahead
        self._told(sender, event.message)
        (self.missing if nothing else self.came).setdefault(number, set()).add(sender)
        return behind

    def _catch_up(self, number: int) -> list[Effect]:
        """Models are further than they can be from one that takes part: join them, and wait for none but who speaks."""
        gone = [(round_, sender) for round_, senders in self.came.items() if round_ < number for sender in senders]
        self.turn = number
        self.attendance.began = None
        self.attendance.absent.update(range(self.places.nodes))
        for known in (self.came, self.missing, self.empty):
            for round_ in [round_ for round_ in known if round_ < number]:
                del known[round_]
        return [*(Forget(token_slot(*one)) for one in gone), Note("catches_up", number=number)]

    def _told(self, sender: int, message: Message) -> None:
        """It may have been told, though that was lost, that the sender has no model."""
        if message.kind == NOTHING:
            self.empty.setdefault(message.round, set()).add(sender)

    def _is_due(self, sender: int, round_: int) -> bool:
        """Whether a node sends to this one for a round."""
        return round_ > 0 and self.node in self.places.holders(round_) and sender in self._sources(round_)

    def _go_on_at(self, now: float) -> list[Effect]:
        """Average and train, if nothing else can come for the next turn; else wait, if its time has come."""
        effects: list[Effect] = []
        while not self.trains and (self.came or self.missing):
            sources, here = self._sources(self.turn), self.came.get(self.turn, set())
            lost = self.missing.get(self.turn, set())
            if lost.issuperset(sources):
                tells = not self.empty.get(self.turn, set()).issuperset(sources)
                effects += self._leave_out_turn(self.places.turn_after(self.node, self.turn), tells)
            elif here and (here | lost | self.attendance.out).issuperset(sources):
                self.attendance.complete(now)
                effects += self._average(here)
            else:
                return [*effects, *([] if self.attendance.is_waiting else [self.attendance.wait(now)])]
        return effects

    def _too_late(self, now: float) -> list[Effect]:
        """Without those that have not come; or to the next turn for which something has."""
        if self.trains or not self.attendance.is_waiting:
            return []
        here = self.came.get(self.turn, set())
        late = set(self._sources(self.turn)) - here - self.missing.get(self.turn, set()) - self.attendance.out
        effects = self.attendance.leave_out(sorted(late), self.turn)
        if here:
            return [*effects, *self._average(here)]
        further = min((round_ for round_ in self.came if round_ > self.turn), default=None)
        after = self.places.turn_after(self.node, self.turn) if further is None else further
        return [*effects, *self._leave_out_turn(after, tells=further is not None), *self._go_on_at(now)]

    def _average(self, here: Iterable[int]) -> list[Effect]:
        """What is there, with weights that sum to one."""
        there, sources = set(here), self._sources(self.turn)
        row = {sender: weight for sender, weight in sources.items() if sender in there}
        if len(row) < len(sources):
            total = sum(row.values())
            row = {sender: weight / total if total else 1.0 / len(row) for sender, weight in row.items()}
        terms = {token_slot(self.turn, sender): weight for sender, weight in row.items()}
        del self.came[self.turn]
        self.missing.pop(self.turn, None)
        self.empty.pop(self.turn, None)
        return [Combine(MODEL, terms), *(Forget(slot) for slot in terms), *self._begin()]

    def _leave_out_turn(self, after: int, tells: bool) -> list[Effect]:
        """Nothing has come for it: the next turn that this node has a part in is `after`."""
        skipped, told = self.turn, self._receivers(self.turn) if tells else []
        self.turn = after
        self.empty = {round_: senders for round_, senders in self.empty.items() if round_ >= after}
        if self.node in told:
            self.missing.setdefault(skipped + 1, set()).add(self.node)
        self.missing = {round_: lost for round_, lost in self.missing.items() if round_ >= after}
        tell = [Send(to, Message(NOTHING, round=skipped + 1)) for to in told if to not in {self.node, *self.cut}]
        return [Note("left_out", peer=self.node, number=skipped), *tell]
