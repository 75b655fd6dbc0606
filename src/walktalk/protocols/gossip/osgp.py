"""OSGP, overlap stochastic gradient push (Assran, Loizou, Ballas, Rabbat 2019): SGP that does not wait for messages.

    x_i ← x_i − η g_i(z_i);   p_ji (x_i, w_i) is sent to all j that i reaches, p_ii (x_i, w_i) is kept
    (x_i, w_i) ← (x_i, w_i) + all that has come,    z_i = x_i / w_i           at any time, also during a training;
                                                                              of a round that i has not done: then

A node goes on training while its shares and those of others are on the way, but never further than τ rounds beyond the
last of which it has everything: messages are τ rounds late at most. Σx and Σw are conserved, what is on the way
included, so lateness does no harm to the mean. With τ = 0 it is SGP, and where rows of P sum to one, too, D-PSGD. As in
the authors' code (facebookresearch/stochastic_gradient_push), shares of a round are weighed when they are sent.

Where nodes and messages are lost, nobody waits for the dead, nor for others for longer than they ever took: a share
that is late is added when it comes, and one that is known to be lost is made up for as in SGP. Where nodes come and go,
all begin anew with their own models and the weight 1, each when it hears of it, and add only shares of those that know
the same network; one that joins begins with the first model z that it hears of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.effects import (
    INITIAL,
    MEMBER,
    UPDATE,
    Combine,
    Effect,
    Forget,
    Message,
    Note,
    Record,
    Send,
    SetTimer,
    Train,
)
from walktalk.protocols.events import (
    Event,
    NetworkChanged,
    PeerFound,
    PeerLost,
    Received,
    Rejoined,
    Started,
    TimerFired,
    Trained,
)
from walktalk.protocols.gossip.sgp import SHARE, SUM, weight_in, weight_note
from walktalk.protocols.machine import Context, Machine, NetworkView
from walktalk.protocols.mechanisms.attendance import LAST, Attendance
from walktalk.protocols.mechanisms.meeting import MODEL
from walktalk.protocols.mechanisms.rounds import BEGIN, LONG, NO_MODEL, NeighbourRounds
from walktalk.protocols.self_description import Law

LONGEST = 100  # rounds that a share may be late and still be added
LOST = b""  # in place of the note of a share that is lost


@dataclass(frozen=True)
class OSGP(NeighbourRounds):
    """Nodes push shares of their models along one-way links, and train on while those are on the way.

    Args:
        delay: how many rounds late a message may be before a node waits for it, τ; 0: stochastic gradient push.
    """

    delay: Annotated[int, Ge(0)] = 1
    name: ClassVar[str] = "osgp"
    also_known_as: ClassVar[tuple[str, ...]] = ("overlap_sgp",)
    paper: ClassVar[str] = "Assran, Loizou, Ballas, Rabbat, ICML 2019"
    keeps: ClassVar[str] = "a sum and a weight at every node"
    sends: ClassVar[str] = "a share of both to every node that it reaches"
    guarantees: ClassVar[str] = (
        "the sums of both are kept, what is on the way included; messages are at most τ rounds late"
    )
    title: ClassVar[str] = "overlap gradient push"
    description: ClassVar[str] = "Nodes push shares of their models along one-way links and train on meanwhile."
    kinds: ClassVar[tuple[str, ...]] = ("push",)
    colour: ClassVar[str] = "#B07AA1"
    conserves: ClassVar[tuple[Law, ...]] = ("sum",)
    on_directed_graphs: ClassVar[bool] = True

    def machine(self, network_view: NetworkView) -> Machine:
        return OverlapPush(network_view, self.delay, self.patience if self.resilient else None)


class OverlapPush(Machine):
    """One node. What comes of a round that it has not finished itself waits until it has."""

    __slots__ = (
        "around",
        "attendance",
        "came",
        "delay",
        "empty",
        "given",
        "latest",
        "longest",
        "moved",
        "owed",
        "resilient",
        "round",
        "training",
        "weight",
        "whole",
    )

    def __init__(self, around: NetworkView, delay: int, patience: float | None) -> None:
        """
        - `around`: what the node knows of the network.
        - `delay`: τ.
        - `patience`: seconds to wait for those that are late, at first; None: nobody is ever lost.
        """
        self.around, self.delay, self.weight = around, delay, 1.0
        self.round = 0  # trainings that are done
        self.whole = 0  # rounds of which everything has come, or is not awaited any more
        self.came: dict[int, dict[int, bytes]] = {}  # round that is not whole, or not done here -> sender -> note
        self.training = self.moved = False
        self.empty = False  # whether it has joined, and no model yet
        self.resilient = patience is not None
        self.longest = LONG * (patience or 0.0)  # how long it waits for its first model, if it joins
        self.attendance = Attendance(patience or 1.0)
        self.given: dict[int, float] = {}  # sender -> the weight that it gave last
        self.latest: dict[int, int] = {}  # the highest round that was heard of each sender
        self.owed: set[tuple[int, int]] = set()  # rounds that went by without the share of a sender that was late

    def handle(self, event: Event, context: Context) -> list[Effect]:
        match event:
            case Received() if event.message.term != self.around.version or self.empty:
                return self._hear_otherwise(event, context.now)
            case Received():
                return [*self._take(event), *self._train_on(context.now)]
            case Trained():
                self.training = False
                return [*self._push(), *self._train_on(context.now)]
            case TimerFired(name) if name == BEGIN:
                return self._begin_with_initial(0, True, context.now) if self.empty else []
            case TimerFired():
                return self._too_late(context.now)
            case NetworkChanged(around):
                return self._change(around, context.now)
            case PeerLost(peer):
                self.attendance.lost(peer)
                return self._train_on(context.now)
            case PeerFound(peer):
                self.attendance.found(peer)
                return []
            case Started(late=False):
                return self._begin_with_initial(0, False, context.now)
            case Started() | Rejoined(memory=b"\0"):
                self.empty = True
                return [SetTimer(BEGIN, self.longest)]
            case Rejoined(memory):
                return self._begin(int.from_bytes(memory, "little"), True, context.now)
            case _:  # one that leaves just goes
                return []

    def keepsake(self) -> bytes:
        return NO_MODEL if self.empty else self.round.to_bytes(4, "little")

    def missed(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """A share is lost: it is made up for."""
        number = message.round
        if self.empty or message.term != self.around.version:
            return []
        if not self.resilient or number < self.whole or sender not in self._sources(number):
            return []
        self.came.setdefault(number, {})[sender] = LOST
        made_up = [*self._add(number, sender, LOST), *self._show()] if number < self.round else []
        return [*made_up, *self._train_on(context.now)]

    def refused(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """What is no model is as good as lost."""
        return self.missed(sender, message, context)

    def _begin(self, number: int, late: bool, now: float) -> list[Effect]:
        self.round = self.whole = number
        if late:  # who took this node for dead has sent it nothing
            self.attendance.absent.update(self.around.sources)
        record = Record(MEMBER, self.around.node, MODEL)
        return [Combine(SUM, {MODEL: 1.0}), record, *self._train_on(now)]

    def _begin_with_initial(self, number: int, late: bool, now: float) -> list[Effect]:
        self.empty = False
        return [Combine(MODEL, {INITIAL: 1.0}), *self._begin(number, late, now)]

    # -- where nodes come and go -----------------------------------------------------------------------------------

    def _hear_otherwise(self, event: Received, now: float) -> list[Effect]:
        """A share of one that knows another network, which nobody adds; one that has joined begins with its model."""
        message = event.message
        if not 0 <= message.round <= LAST:
            raise ValueError(f"round {message.round} is not possible; allowed: 0 to {LAST}")
        if not self.empty:
            self.latest[event.sender] = max(message.round, self.latest.get(event.sender, -1))
            return [Forget(event.slot)]
        self.empty, share = False, 1.0 / weight_in(message.note)
        adopted: list[Effect] = [Combine(MODEL, {event.slot: share}), Forget(event.slot)]
        return [*adopted, *self._begin(message.round + 1, True, now)]

    def _change(self, around: NetworkView, now: float) -> list[Effect]:
        """Nodes have come or left: begin anew with the model of now, and wait for nobody before it has spoken."""
        before, who = self.around, self.attendance
        self.around = around
        who.cut |= (set(before.neighbours) ^ set(around.neighbours)) | around.leaving
        who.absent.update(around.sources)
        if self.empty:
            return []
        here = [(number, sender) for number, notes in self.came.items() for sender in notes if number >= self.round]
        self.came, self.owed, self.given = {}, set(), {}
        self.weight, self.whole, self.moved = 1.0, self.round, True
        forget: list[Effect] = [Forget(f"push/{number}/{sender}") for number, sender in here]
        return [*forget, Combine(SUM, {MODEL: 1.0}), *self._train_on(now)]

    # -- waiting ----------------------------------------------------------------------------------------------------

    def _train_on(self, now: float) -> list[Effect]:
        while self.whole < self.round and not self._missing(self.whole):
            here = self.came.pop(self.whole, {})
            if self.resilient:
                late = {(self.whole, sender) for sender in self._sources(self.whole) if sender not in here}
                self.owed = {one for one in self.owed | late if one[0] > self.whole - LONGEST}
            self.whole += 1
        if self.training:
            return []
        if self.whole < self.round - self.delay:
            return self._wait(now)
        self.attendance.complete(now)
        self.training, self.moved = True, False
        return [Train(MODEL)]

    def _wait(self, now: float) -> list[Effect]:
        return [self.attendance.wait(now)] if self.resilient and not self.attendance.is_waiting else []

    def _missing(self, round_: int) -> list[int]:
        """Whose share of a round is awaited; one that is further sends it no more."""
        here, out = self.came.get(round_, {}), self.attendance.out
        awaited = [sender for sender in self._sources(round_) if sender not in here and sender not in out]
        return [sender for sender in awaited if not self.resilient or self.latest.get(sender, -1) <= round_]

    def _too_late(self, now: float) -> list[Effect]:
        if not self.attendance.is_waiting:
            return []
        missing = {sender for number in range(self.whole, self.round - self.delay) for sender in self._missing(number)}
        return [*self.attendance.leave_out(sorted(missing), self.whole), *self._train_on(now)]

    def _sources(self, round_: int) -> tuple[int, ...]:
        return self.around.meets(round_)[1]

    # -- shares -----------------------------------------------------------------------------------------------------

    def _push(self) -> list[Effect]:
        """Take in what was learned, and give shares of it away."""
        statistics = {SUM: 0.5, UPDATE: 0.5 * self.weight} if self.moved else {UPDATE: self.weight}
        learn = Combine(SUM, {SUM: 1.0, UPDATE: 1.0}, statistics)
        targets = [to for to in self.around.meets(self.round)[0] if to not in self.attendance.cut]
        share = 1.0 / (len(targets) + 1)
        self.weight *= share
        message = Message("push", round=self.round, term=self.around.version, note=weight_note(self.weight))
        sends = [Send(to, message, SHARE) for to in targets]
        self.round += 1
        added = self._add_all(self.round - 1)
        return [learn, Combine(SHARE, {SUM: share}), *sends, Combine(SUM, {SHARE: 1.0}), *added, *self._show()]

    def _take(self, event: Received) -> list[Effect]:
        sender, number, note = event.sender, event.message.round, event.message.note
        owed, past = (number, sender) in self.owed, number < self.whole
        if not 0 <= number <= LAST:
            raise ValueError(f"round {number} is not possible; allowed: 0 to {LAST}")
        if (past and not self.resilient) or sender in self.came.get(number, {}) or sender not in self._sources(number):
            raise ValueError(f"{sender} does not push to this node in round {number}, or has done so")
        weight_in(note)  # refuses nonsense before anything is taken in
        if self.resilient and not self.attendance.believes(sender, number, self.round, self.around.sources):
            return [Forget(event.slot), Note("disbelieved", peer=sender, number=number)]
        self.latest[sender] = max(number, self.latest.get(sender, -1))
        if past and not owed:  # of one that lags behind, and was not awaited
            self.attendance.speaks(sender)
            return [Forget(event.slot)]
        caught_up = self._go_to(number) if self.resilient and self._lags(number) else []
        self.attendance.speaks(sender)
        self.owed.discard((number, sender))
        if not owed:
            self.came.setdefault(number, {})[sender] = note
        now = [*self._add(number, sender, note), *self._show()] if number < self.round else []
        return [*caught_up, *now]

    def _lags(self, number: int) -> bool:
        """Nobody is so far ahead of a node that takes part: others wait for it, if not all directly."""
        return number > self.round + self.around.nodes * (self.delay + 1)

    def _go_to(self, number: int) -> list[Effect]:
        """The others are ahead: join them with what is here."""
        waiting = sorted(before for before in self.came if self.round <= before < number)
        added = [effect for before in waiting for effect in self._add_all(before)]
        self.came = {later: notes for later, notes in self.came.items() if later >= number}
        self.round = self.whole = number
        self.attendance.absent.update(self.around.sources)
        return [*added, *self._show(), Note("catches_up", number=number)]

    def _add_all(self, round_: int) -> list[Effect]:
        waiting = self.came.get(round_, {})
        return [effect for sender, note in waiting.items() for effect in self._add(round_, sender, note)]

    def _add(self, round_: int, sender: int, note: bytes) -> list[Effect]:
        """A share that has come; or, in place of one that is lost, as much of one's own model."""
        if note == LOST:
            made_up = self.given.get(sender, self.weight)
            grown = 1.0 + made_up / self.weight
            self.weight += made_up
            return [Combine(SUM, {SUM: grown})]
        slot, self.given[sender] = f"push/{round_}/{sender}", weight_in(note)
        self.weight += self.given[sender]
        self.moved = True
        return [Combine(SUM, {SUM: 1.0, slot: 1.0}), Forget(slot)]

    def _show(self) -> list[Effect]:
        """The model of a node is z = x/w."""
        return [Combine(MODEL, {SUM: 1.0 / self.weight}), Record(MEMBER, self.around.node, MODEL)]
