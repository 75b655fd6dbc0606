"""Asynchronous gossip where nodes and messages are lost: dead neighbours are left out, returning ones taken in.

While nothing fails this is `async_gossip`, message by message. A neighbour is left out while the runtime says that it
is lost, and while an exchange with it is open: a partition or a hung neighbour shows itself by that. What an
interrupted exchange does is said in `exchanges`.

One that joins in the middle has no model: it takes the first that is offered to it, and answers with the same, so that
nothing is changed by it at the other side and the initial model is in nobody's mean again. One that leaves for good
offers its model once more, and goes when that is answered.
"""

from __future__ import annotations

from walktalk.protocols.arrivals import Arrivals
from walktalk.protocols.async_gossip.exchanges import Exchange, Exchanges
from walktalk.protocols.async_gossip.habit import MODEL, Habit, kept_offer
from walktalk.protocols.effects import (
    INITIAL,
    MEMBER,
    Combine,
    Effect,
    Forget,
    Note,
    Record,
    Send,
    SetTimer,
    absorb,
    apply_update,
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

BEGIN = "begin"  # timer: nobody offers anything
NO_MODEL = b"\0"  # what a keepsake is that was made before there was a model
LONG = 10.0  # times the patience with one answer: so long one that joins waits for its first model
CLOSED = "closed"  # kind of a message: this exchange is long over
MESSAGES = {
    "offer": Arrival("offer/{sender}", once=True),
    "answer": Arrival("answer/{sender}", once=True),
    CLOSED: Arrival(),
}


class ResilientGossip(Machine):
    """A node that offers its model to one neighbour or to all of them, and answers the offers of others."""

    __slots__ = ("around", "cut", "empty", "exchanges", "habit", "leaving", "moved", "patience", "training")

    def __init__(self, around: Surroundings, habit: Habit, patience: float) -> None:
        self.around, self.habit = around, habit
        self.exchanges = Exchanges(Arrivals(patience / 4, 0.0))
        self.patience = patience
        self.empty = False  # whether it has joined, and no model yet
        self.leaving = False  # whether it is to leave for good
        self.cut: set[int] = set()  # neighbours that are lost
        self.training = False
        self.moved = False  # whether the model was mixed since the training under way began

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        match event:
            case Received(sender, message, "") if message.kind == CLOSED:
                return [*self._close(sender, message, outside.now), *self._train_on(outside)]
            case Received(sender, message):
                if sender not in self.around.neighbours:
                    raise ValueError(f"{sender} is no neighbour")
                effects = self._answer(event) if message.kind == "offer" else self._take(event, outside.now)
                return [*effects, *self._train_on(outside)]
            case Trained():
                self.training = False
                return [apply_update(MODEL, self.moved), self._record(), *self._offer(outside)]
            case TimerFired(name) if name == BEGIN:
                return self._begin(outside) if self.empty else []
            case TimerFired(name):
                return self._ask_again(int(name.rpartition("/")[2]), outside)
            case PeerLost(peer):
                self.cut.add(peer)
                return [*self._wait_no_longer(peer), *self._train_on(outside)]
            case PeerFound(peer):
                self.cut.discard(peer)
                return self._ask_again(peer, outside) if peer in self.exchanges.begun else []
            case NetworkChanged(around):
                return [*self._change(around), *self._train_on(outside)]
            case Leaving():
                self.leaving = True
                return []
            case Started(late=False):
                return self._begin(outside)
            case Started() | Rejoined(memory=b"\0"):
                self.empty = True
                return [SetTimer(BEGIN, LONG * self.patience)]
            case Rejoined(memory):
                self.exchanges.life = outside.random.getrandbits(30) + 1
                self.exchanges.remember(memory, outside.now)
                asked = [effect for peer in self.exchanges.begun for effect in self._ask_again(peer, outside)]
                return [self._record(), *asked, *self._train_on(outside)]

    def may_go(self) -> bool:
        """When its last training is done, and what it then offered is answered."""
        return self.empty or not (self.training or self.exchanges.begun)

    def keepsake(self) -> bytes:
        return NO_MODEL if self.empty else self.exchanges.keepsake()

    def refused(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """An offer is over for the one that made it; an answer that is none ends what this node began."""
        if message.kind == "offer":
            return [Send(sender, Message(CLOSED, round=message.round, term=message.term))]
        return [*self._close(sender, message, outside.now), *self._train_on(outside)]

    def _record(self) -> Effect:
        return Record(MEMBER, self.around.node, MODEL)

    def _begin(self, outside: Outside) -> list[Effect]:
        """With the initial model."""
        self.empty = False
        return [Combine(MODEL, {INITIAL: 1.0}), self._record(), *self._train_on(outside)]

    def _change(self, around: Surroundings) -> list[Effect]:
        """Other neighbours from now on; what was open with one that is none any more is over."""
        before, self.around = self.around.neighbours, around
        self.cut |= {peer for peer in around.neighbours if peer not in before}
        effects: list[Effect] = []
        for peer in before:
            if peer in around.neighbours:
                continue
            self.cut.discard(peer)
            effects += self._wait_no_longer(peer)
            if self.exchanges.begun.pop(peer, None) is not None:
                effects.append(Forget(kept_offer(peer)))
            if self.exchanges.given.pop(peer, None) is not None:
                effects.append(Forget(given_slot(peer)))
        return effects

    def _train_on(self, outside: Outside) -> list[Effect]:
        if self.empty or self.leaving or self.training or (self.exchanges.awaited and not self.habit.overlap):
            return []
        self.training, self.moved = True, False
        return [self.habit.train(outside)]

    # -- the active side ------------------------------------------------------------------------------------------

    def _offer(self, outside: Outside) -> list[Effect]:
        if self.exchanges.awaited:
            return self._train_on(outside)
        out = (*self.cut, *self.exchanges.begun, *self.around.leaving)
        peers = [peer for peer in self.around.neighbours if peer not in out]
        effects: list[Effect] = []
        for peer in self.habit.partners(peers, outside):
            exchange = self.exchanges.begin(peer, outside.now)
            timer = SetTimer(f"ask/{peer}", self.exchanges.patience(peer))
            kept = Combine(kept_offer(peer), {MODEL: 1.0})
            effects += [kept, self._say_offer(peer, exchange, again=False), timer]
        return [*effects, *self._train_on(outside)]

    def _say_offer(self, peer: int, exchange: Exchange, again: bool) -> Effect:
        return Send(peer, Message("offer", round=exchange.number, term=exchange.life), kept_offer(peer), again)

    def _take(self, event: Received, now: float) -> list[Effect]:
        """Add the weighted difference, however late it comes."""
        peer, weight = event.sender, self.habit.weight(self.around, event.sender)
        exchange = self.exchanges.answered(peer, event.message.term, event.message.round, now)
        if exchange is None:
            return [Forget(event.slot)]
        offered, self.moved = kept_offer(peer), True
        mix = absorb(MODEL, MODEL, weight, event.slot, offered)
        return [mix, Forget(event.slot), Forget(offered), self._record()]

    def _close(self, peer: int, message: Message, now: float) -> list[Effect]:
        """The checkpoint is older than the end of this exchange."""
        exchange = self.exchanges.answered(peer, message.term, message.round, now)
        return [Forget(kept_offer(peer))] if exchange is not None else []

    def _wait_no_longer(self, peer: int) -> list[Effect]:
        """What was offered is kept; go on."""
        exchange = self.exchanges.begun.get(peer)
        if exchange is None or not exchange.waiting:
            return []
        exchange.waiting = False
        return [Note("interrupted", peer=peer, number=exchange.number)]

    def _ask_again(self, peer: int, outside: Outside) -> list[Effect]:
        exchange = self.exchanges.begun.get(peer)
        if exchange is None:
            return []
        effects = [*self._wait_no_longer(peer), *self._train_on(outside)]
        if peer in self.cut:
            return effects
        exchange.tries += 1
        again = self._say_offer(peer, exchange, again=True)
        return [*effects, again, SetTimer(f"ask/{peer}", self.exchanges.patience(peer))]

    # -- the passive side -----------------------------------------------------------------------------------------

    def _answer(self, event: Received) -> list[Effect]:
        """Send the model of before, then add the weighted difference; the same offer again changes nothing."""
        peer, life, number = event.sender, event.message.term, event.message.round
        before, answer = self.exchanges.given.get(peer, (-1, 0)), Message("answer", round=number, term=life)
        kept = given_slot(peer)
        if (life, number) == before:
            return [Forget(event.slot), Send(peer, answer, kept, again=True)]
        if life == before[0] and number < before[1]:
            return [Forget(event.slot), Send(peer, Message(CLOSED, round=number, term=life))]
        self.exchanges.given[peer], self.moved = (life, number), True
        if self.empty:
            self.empty = False
            both: list[Effect] = [Combine(slot, {event.slot: 1.0}) for slot in (MODEL, kept)]
            return [*both, Forget(event.slot), Send(peer, answer, kept), self._record()]
        weight = self.habit.weight(self.around, peer)
        return [
            Combine(kept, {MODEL: 1.0}),
            Send(peer, answer, kept),
            Combine(MODEL, {MODEL: 1.0 - weight, event.slot: weight}),
            Forget(event.slot),
            self._record(),
        ]


def given_slot(peer: int) -> str:
    """What was answered to a neighbour's last offer."""
    return f"given/{peer}"
