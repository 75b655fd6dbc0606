"""Synchronous gossip where nodes and messages are lost: a round goes on without those that do not come.

A neighbour is left out of a round when the runtime says that it is lost, or when it is later than neighbours ever were
(`attendance`); its weight in the Metropolis–Hastings row stays with the node itself, so rows still sum to one, and so
do columns where both sides leave each other out. A node that comes back, or lags behind, goes to the round of those
that it hears; one that joins in the middle takes the first model that it hears of, and its round.
"""

from __future__ import annotations

from collections.abc import Mapping

from walktalk.protocols.attendance import Attendance
from walktalk.protocols.effects import (
    INITIAL,
    MEMBER,
    UPDATE,
    Combine,
    Effect,
    Forget,
    Note,
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
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.weights import weights

MODEL = "model"
OWN_UPDATE = "own_update"  # kept while neighbours are still awaited
BEGIN = "begin"  # timer: nobody says anything
LONG = 10.0  # times the patience with a neighbour: so long one that joins waits for its first model
NO_MODEL = b"\0"  # what a keepsake is that was made before there was a model


class ResilientRounds(Machine):
    """One node of D-PSGD that waits for nobody who is dead."""

    __slots__ = ("around", "arrived", "attendance", "empty", "latest", "patience", "round", "trained")

    def __init__(self, around: Surroundings, patience: float) -> None:
        self.around, self.patience = around, patience
        self.empty = False  # whether it has joined, and no model yet
        self.round = 0
        self.trained = False
        self.arrived: dict[int, set[int]] = {}  # round -> neighbours whose model of that round is here
        self.latest: dict[int, int] = {}  # the highest round that was heard of each neighbour
        self.attendance = Attendance(patience)

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        match event:
            case Received():
                return self._received(event, outside.now)
            case Trained():
                self.trained = True
                keep: list[Effect] = [Combine(OWN_UPDATE, {UPDATE: 1.0}), self.attendance.wait(outside.now)]
                return [*keep, *self._finish_round(outside.now)]
            case TimerFired(name) if name == BEGIN:
                return self._begin() if self.empty else []
            case TimerFired():
                return self._too_late(outside.now)
            case PeerLost(peer):
                self.attendance.lost(peer)
                return self._finish_round(outside.now)
            case PeerFound(peer):
                self.attendance.found(peer)
                return [] if self.empty else [self._send(peer)]
            case NetworkChanged(around):
                return self._change(around, outside.now)
            case Leaving():
                return []
            case Started(late=False):
                return self._begin()
            case Started() | Rejoined(memory=b"\0"):
                self.empty = True
                return [SetTimer(BEGIN, LONG * self.patience)]
            case Rejoined():
                return [Record(MEMBER, self.around.node, MODEL), *self._begin_round()]

    def keepsake(self) -> bytes:
        return NO_MODEL if self.empty else b""

    def _begin(self) -> list[Effect]:
        """With the initial model."""
        self.empty = False
        return [Combine(MODEL, {INITIAL: 1.0}), Record(MEMBER, self.around.node, MODEL), *self._begin_round()]

    def _change(self, around: Surroundings, now: float) -> list[Effect]:
        """Other neighbours from now on; nobody waits for one that is none any more."""
        before, self.around, who = self.around.neighbours, around, self.attendance
        who.cut = {peer for peer in around.neighbours if peer in who.cut or peer not in before}
        who.absent = {peer for peer in who.absent if peer in around.neighbours} | around.leaving
        effects: list[Effect] = []
        for number, peers in self.arrived.items():
            gone = peers.difference(around.neighbours)
            peers -= gone
            effects += [Forget(slot_of(number, peer)) for peer in sorted(gone)]
        for peer in set(self.latest).difference(around.neighbours):
            del self.latest[peer]
        return [*effects, *self._finish_round(now)]

    def refused(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """Its round goes on without it."""
        self.attendance.absent.add(sender)
        return self._finish_round(outside.now)

    def missed(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """So does the one of which a message was lost."""
        self.latest[sender] = max(message.round, self.latest.get(sender, 0))
        return self._finish_round(outside.now)

    def _received(self, event: Received, now: float) -> list[Effect]:
        peer, number = event.sender, event.message.round
        if peer not in self.around.neighbours:
            raise ValueError(f"{peer} is no neighbour")
        if self.empty:
            return self._adopt(event)
        self.attendance.speaks(peer)
        self.latest[peer] = max(number, self.latest.get(peer, 0))
        if number < self.round:
            return [Forget(event.slot)]
        self.arrived.setdefault(number, set()).add(peer)
        jump = self._go_to(number) if number > self.round + 1 else []
        return [*jump, *self._finish_round(now)]

    def _adopt(self, event: Received) -> list[Effect]:
        """The first model that is heard of, and its round; the others count as absent until they speak."""
        self.empty, self.round = False, event.message.round
        self.attendance.absent.update(self.around.neighbours)
        taken: list[Effect] = [Combine(MODEL, {event.slot: 1.0}), Forget(event.slot)]
        return [*taken, Record(MEMBER, self.around.node, MODEL), *self._begin_round()]

    def _go_to(self, number: int) -> list[Effect]:
        """The others are ahead: join them with the model of now; the training under way counts for that round."""
        old = [(r, peer) for r, peers in self.arrived.items() if r < number for peer in peers]
        forget: list[Effect] = [Forget(slot_of(r, peer)) for r, peer in old]
        self.arrived = {r: peers for r, peers in self.arrived.items() if r >= number}
        self.round = number
        return [*forget, Note("catches_up", number=number), *self._send_all()]

    def _begin_round(self) -> list[Effect]:
        return [*self._send_all(), Train(MODEL)]

    def _send_all(self) -> list[Effect]:
        return [self._send(peer) for peer in self.around.neighbours if peer not in self.attendance.cut]

    def _send(self, peer: int) -> Effect:
        return Send(peer, Message("round", round=self.round), MODEL)

    def _missing(self) -> set[int]:
        """Neighbours whose model of this round may still come; one that is further will not send it any more."""
        out = self.attendance.out
        return {p for p in self.around.neighbours if p not in out and self.latest.get(p, -1) < self.round}

    def _too_late(self, now: float) -> list[Effect]:
        missing = sorted(self._missing()) if self.trained else []
        return [*self.attendance.leave_out(missing, self.round), *self._finish_round(now)]

    def _finish_round(self, now: float) -> list[Effect]:
        if not self.trained or self._missing():
            return []
        around, here = self.around, self.arrived.pop(self.round, set())
        mix = round_ends(self.round, weights(around, here))
        self.attendance.complete(now)
        self.round += 1
        self.trained = False
        return [*mix, Record(MEMBER, around.node, MODEL), *self._begin_round()]


def slot_of(round_: int, sender: int) -> str:
    """Where a neighbour's model of a round arrives."""
    return f"round/{round_}/{sender}"


def round_ends(round_: int, row: Mapping[int, float]) -> list[Effect]:
    """x_i ← Σ_j W_ij x_j plus the own update, with the weights of those that came; the rest of the row is its own."""
    others, own = {slot_of(round_, peer): weight for peer, weight in row.items()}, 1.0 - sum(row.values())
    mix = Combine(MODEL, {MODEL: own, **others, OWN_UPDATE: 1.0}, {OWN_UPDATE: own, **others})
    return [mix, *(Forget(slot) for slot in others)]


# Who cannot keep up is sent the model of the newest round alone: the others go on without it.
MESSAGES = {"round": Arrival("round/{round}/{sender}", latest=True)}
