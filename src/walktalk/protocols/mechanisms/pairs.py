"""Exchanges between two nodes: both average, once, though messages and nodes are lost and nodes come and go.

    i offers x_i;    j answers with its x_j, then x_j ← x_j + w (x_i − x_j);    i: x_i ← x_i + w (x_j − x_i as offered)

Each side adds the same weighted difference with opposite signs, so the sum of the two is kept whatever else happens to
either in between: no locks, no deadlock, no bipartite graph. What a node does with its models is a `PairRule`, which
knows nothing of failures; when it trains and offers, `Turns` (one, then the other) and `free_loops` (both) say.

**Plain**, where nothing fails, an exchange is two messages and nothing more. **Resilient**, an exchange has a number.
The passive side keeps the model that it answered with until the same neighbour's next offer; an offer that comes again
gets the same answer again and is not applied again. The active side keeps what it offered, trains on, and asks again
now and then; the answer brings a difference, which can be added at any later time. So after any losses both have
changed as soon as one message gets through each way, or neither has; only the death of one side leaves an exchange
open, and then the dead one's model is out of the mean anyway. What is open or answered is remembered with the
checkpoint, so one that comes back goes on with the same exchange and takes no offer twice; new exchanges belong to its
new incarnation, whose numbers start again. Where a checkpoint is older than the end of an exchange, the other side
answers that it is closed. Neighbours that are lost, and those with an open exchange, are left out: a partition or a
hung neighbour shows itself by that.

**Elastic**, where nodes come and go: one that joins in the middle takes the first model that is offered to it, and
answers with the same, so that nothing changes at the other side and the initial model is in nobody's mean again. One
that leaves for good offers its model once more after its last training, and goes when that is answered.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from walktalk.protocols.effects import INITIAL, MEMBER, Combine, Effect, Forget, Message, Note, Record, Send, SetTimer
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
from walktalk.protocols.machine import Context, Machine, NetworkView
from walktalk.protocols.mechanisms.attendance import MOST_DOUBLINGS, Arrivals
from walktalk.protocols.mechanisms.pair_rule import ANSWER, CLOSED, MODEL, OFFER, PairRule, random_one

OFFERED = "offered"  # plain: the model that this node sent and whose answers it still waits for
KEEP_OFFER = Combine(OFFERED, {MODEL: 1.0})
BEGIN = "begin"  # timer: nobody offers anything to one that has joined
NO_MODEL = b"\0"  # what is remembered of a node that died before it had a model
LONG = 10.0  # times the patience with one answer: so long one that joins waits for its first model
OPEN, ANSWERED = 1, 2
_ENTRY = struct.Struct("<BIII")


@dataclass(slots=True)
class Exchange:
    """An exchange that this node began and that is not answered yet."""

    incarnation: int  # of this node, in which it began
    number: int
    since: float
    waiting: bool = True  # whether the node waits for it before it goes on
    tries: int = 1


PLAIN = Exchange(0, 0, 0.0, tries=0)  # where nothing is lost, one is like the other: no numbers, no times
PLAIN_OFFER, PLAIN_ANSWER = Message(OFFER), Message(ANSWER)


@dataclass(slots=True)
class Exchanges:
    """All exchanges of a node that are open or were answered last."""

    answers: Arrivals  # how long answers take
    begun: dict[int, Exchange] = field(default_factory=dict)  # by neighbour
    given: dict[int, tuple[int, int]] = field(default_factory=dict)  # neighbour -> incarnation, number answered last
    incarnation: int = 0  # of this node: 0 from the start, something else after each return
    count: int = 0

    def begin(self, peer: int, now: float) -> Exchange:
        """Opens an exchange with a neighbour."""
        self.count += 1
        self.begun[peer] = exchange = Exchange(self.incarnation, self.count, now)
        return exchange

    def answered(self, peer: int, message: Message, now: float) -> Exchange | None:
        """Close the exchange that an answer is about; None where it is not one that is awaited."""
        exchange = self.begun.get(peer)
        if exchange is None or message.round != exchange.number or message.term != exchange.incarnation:
            return None
        if exchange.tries == 1:
            self.answers.observe(now - exchange.since)
        return self.begun.pop(peer)

    def keepsake(self) -> bytes:
        """What is open and what was answered last, by neighbour."""
        open_ = [(OPEN, peer, exchange.incarnation, exchange.number) for peer, exchange in self.begun.items()]
        answered = [(ANSWERED, peer, life, number) for peer, (life, number) in self.given.items()]
        return b"".join(_ENTRY.pack(*entry) for entry in (*open_, *answered))

    def remember(self, memory: bytes, now: float) -> None:
        """Take up an earlier incarnation's keepsake; one that was torn says nothing."""
        if len(memory) % _ENTRY.size:
            return
        for what, peer, life, number in _ENTRY.iter_unpack(memory):
            if what == OPEN:
                self.begun[peer] = Exchange(life, number, now, waiting=False, tries=2)
            else:
                self.given[peer] = life, number

    def patience(self, peer: int) -> float:
        """How long to wait for this neighbour before asking again."""
        return self.answers.patience * 2.0 ** min(self.begun[peer].tries - 1, MOST_DOUBLINGS)

    @property
    def awaited(self) -> bool:
        """Whether the node still waits for an answer."""
        for exchange in self.begun.values():  # noqa: SIM110 – asked at every event, and a generator takes twice as long
            if exchange.waiting:
                return True
        return False


class PairNode(Machine):
    """A node that offers its model to neighbours and answers their offers; when it does, its two forms say."""

    __slots__ = (
        "around", "cut", "empty", "exchanges", "leaving", "moved", "parted", "patience", "record", "rule", "training",
    )  # fmt: skip

    def __init__(self, around: NetworkView, rule: PairRule, patience: float | None) -> None:
        """
        - `around`: what the node knows of the network.
        - `rule`: what happens to its models.
        - `patience`: seconds to wait for the first answers; None: nothing is ever lost.
        """
        self.around, self.rule, self.patience = around, rule, patience
        self.record = Record(MEMBER, around.node, MODEL)  # the node's model, for measuring
        self.exchanges = Exchanges(Arrivals((patience or 1.0) / 4, 0.0))
        self.cut: set[int] = set()  # neighbours that are lost
        self.empty = False  # whether it has joined, and no model yet
        self.leaving = self.parted = False  # whether it is to leave for good, and has made its last offer
        self.training = False
        self.moved = False  # whether the model was mixed since the training under way began

    # -- in which its forms differ --------------------------------------------------------------------------------

    @abstractmethod
    def passed(self, now: float) -> list[Effect]:
        """What has happened to the models by itself since the last event."""

    @abstractmethod
    def trained(self, context: Context) -> list[Effect]:
        """A training is done."""

    @abstractmethod
    def talk(self, context: Context) -> list[Effect]:
        """The timer for the next offer has run out."""

    @abstractmethod
    def go_on(self, context: Context) -> list[Effect]:
        """Nothing may be awaited any more: train, or set the time of the next offer."""

    # -- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Started):
            late = event.late and self.patience
            return self._wait_for_a_model() if late else [Combine(MODEL, {INITIAL: 1.0}), *self._begin(context)]
        if isinstance(event, Rejoined):
            return self._wait_for_a_model() if event.memory == NO_MODEL else self._rejoin(event.memory, context)
        passed = self.passed(context.now)
        if isinstance(event, Received):
            if event.sender not in self.around.neighbours:
                raise ValueError(f"{event.sender} is no neighbour")
            reaction = self._received(event, context)
        elif isinstance(event, Trained):
            self.training = False
            reaction = self.trained(context)
            if self.leaving:
                reaction += self._part(context)
        elif isinstance(event, TimerFired):
            reaction = self._timer(event.name, context)
        else:
            reaction = self._network(event, context) if self.patience else []
        return [*passed, *reaction] if passed else reaction

    def _wait_for_a_model(self) -> list[Effect]:
        self.empty = True
        return [SetTimer(BEGIN, LONG * (self.patience or 1.0))]

    def _received(self, event: Received, context: Context) -> list[Effect]:
        if event.message.kind == OFFER:
            return self._answer(event, context) if self.patience else self._plain_answer(event)
        return self._answered(event, context) if self.patience else self._plain_answered(event, context)

    def _timer(self, name: str, context: Context) -> list[Effect]:
        if name == BEGIN:
            return [Combine(MODEL, {INITIAL: 1.0}), *self._begin(context)] if self.empty else []
        asked, _, peer = name.rpartition("/")
        return self._late(int(peer), context) if asked else self.talk(context)

    def _network(self, event: Event, context: Context) -> list[Effect]:
        match event:
            case PeerLost(peer):
                self.cut.add(peer)
                return self._wait_no_longer(peer, context)
            case PeerFound(peer):
                self.cut.discard(peer)
                return self._late(peer, context)
            case NetworkChanged(around):
                return self._change(around, context)
            case Leaving():
                self.leaving, self.parted = True, not self.training
        return []

    def may_go(self) -> bool:
        """When its last training is done, and what it then offered is answered."""
        done = self.parted and not self.training and not self.exchanges.begun
        return self.empty or done or not self.leaving

    def keepsake(self) -> bytes:
        return NO_MODEL if self.empty else self.exchanges.keepsake() if self.patience else b""

    def refused(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """An offer is over for the one that made it; an answer that is none ends what this node began."""
        if not self.patience:
            return []
        if message.kind == OFFER:
            return [Send(sender, Message(CLOSED, round=message.round, term=message.term))]
        return self._answered(Received(sender, message._replace(kind=CLOSED), ""), context)

    def _begin(self, context: Context) -> list[Effect]:
        """Go on with the model that has come."""
        self.empty = False
        return [*self.rule.begin(), self.record, *self.go_on(context)]

    def _rejoin(self, memory: bytes, context: Context) -> list[Effect]:
        """Back from a death, with the model of the checkpoint and the exchanges that were open then."""
        if self.patience:
            self.exchanges.incarnation = context.random.getrandbits(30) + 1
            self.exchanges.remember(memory, context.now)
        begins = self._begin(context)
        return [*begins, *(effect for peer in self.exchanges.begun for effect in self._ask_again(peer))]

    def _change(self, around: NetworkView, context: Context) -> list[Effect]:
        """Other neighbours from now on; what was open with one that is none any more is over."""
        before, self.around = self.around.neighbours, around
        self.cut |= {peer for peer in around.neighbours if peer not in before}
        effects: list[Effect] = []
        for peer in [peer for peer in before if peer not in around.neighbours]:
            self.cut.discard(peer)
            effects += self._wait_no_longer(peer, context)
            if self.exchanges.begun.pop(peer, None) is not None:
                effects.append(Forget(offered_slot(peer)))
            if self.exchanges.given.pop(peer, None) is not None:
                effects.append(Forget(given_slot(peer)))
        return [*effects, *self.go_on(context)]

    # -- both sides, plain: with nothing to number, to keep or to ask for again -----------------------------------

    def _plain_offer(self, partners: Iterable[int]) -> list[Effect]:
        effects: list[Effect] = []
        for peer in partners:
            self.exchanges.begun[peer] = PLAIN
            effects.append(Send(peer, PLAIN_OFFER, MODEL))
        return [KEEP_OFFER, *effects] if effects else effects

    def _plain_answer(self, event: Received) -> list[Effect]:
        peer, slot = event.sender, event.slot
        return [Send(peer, PLAIN_ANSWER, MODEL), *self._meet(slot, MODEL, peer), Forget(slot), self.record]

    def _plain_answered(self, event: Received, context: Context) -> list[Effect]:
        slot, open_ = event.slot, self.exchanges.begun
        if open_.pop(event.sender, None) is None:
            return [Forget(slot)]
        over = () if open_ else (Forget(OFFERED),)
        mix = self._meet(slot, OFFERED, event.sender)
        return [*mix, Forget(slot), self.record, *over, *self.go_on(context)]

    # -- the active side ------------------------------------------------------------------------------------------

    @property
    def free(self) -> Sequence[int]:
        """Neighbours that are there, will stay, and with whom no exchange is open."""
        everyone, leaving = self.around.neighbours, self.around.leaving
        if not (self.exchanges.begun or self.cut or leaving):
            return everyone
        out = (*self.cut, *self.exchanges.begun, *leaving)
        return [peer for peer in everyone if peer not in out]

    def partner(self, context: Context) -> list[int]:
        """One of the free neighbours at random, if there is any."""
        one = random_one(self.free, context)
        return [] if one is None else [one]

    def offer(self, partners: Iterable[int], now: float) -> list[Effect]:
        """Offer the model of now to these neighbours."""
        if not self.patience:
            return self._plain_offer(partners)
        self.parted = self.leaving and not self.training
        effects: list[Effect] = []
        for peer, exchange in [(peer, self.exchanges.begin(peer, now)) for peer in partners]:
            slot, timer = offered_slot(peer), SetTimer(f"ask/{peer}", self.exchanges.patience(peer))
            effects += [Combine(slot, {MODEL: 1.0}), Send(peer, _about(OFFER, exchange), slot), timer]
        return effects

    def _part(self, context: Context) -> list[Effect]:
        """The last offer of a node that leaves, once it trains no more and waits for no answer."""
        waits = self.training or self.exchanges.awaited
        return [] if not self.leaving or self.parted or waits else self.offer(self.partner(context), context.now)

    def _answered(self, event: Received, context: Context) -> list[Effect]:
        """Take what the answer brings, however late; or nothing, where the other says that this is long over."""
        peer = event.sender
        came: list[Effect] = [Forget(event.slot)] if event.slot else []
        exchange = self.exchanges.answered(peer, event.message, context.now)
        if exchange is None:
            return came
        offered = offered_slot(peer)
        mix = self._meet(event.slot, offered, peer) if event.slot else []
        on = [*self.go_on(context), *self._part(context)] if exchange.waiting else []
        return [*mix, *came, self.record, Forget(offered), *on]

    def _wait_no_longer(self, peer: int, context: Context) -> list[Effect]:
        """Go on without an answer; what was offered is kept."""
        exchange = self.exchanges.begun.get(peer)
        if exchange is None or not exchange.waiting:
            return []
        exchange.waiting = False
        note = Note("interrupted", peer=peer, number=exchange.number)
        return [note, *self.go_on(context), *self._part(context)]

    def _late(self, peer: int, context: Context) -> list[Effect]:
        return [*self._wait_no_longer(peer, context), *self._ask_again(peer)]

    def _ask_again(self, peer: int) -> list[Effect]:
        exchange = self.exchanges.begun.get(peer)
        if exchange is None or peer in self.cut:
            return []
        exchange.tries += 1
        again = Send(peer, _about(OFFER, exchange), offered_slot(peer), again=True)
        return [again, SetTimer(f"ask/{peer}", self.exchanges.patience(peer))]

    # -- the passive side -----------------------------------------------------------------------------------------

    def _answer(self, event: Received, context: Context) -> list[Effect]:
        """Send the model of before, then take the difference; the same offer again changes nothing."""
        peer, number, life = event.sender, event.message.round, event.message.term
        answer, forget = Message(ANSWER, round=number, term=life), Forget(event.slot)
        before, kept = self.exchanges.given.get(peer, (-1, 0)), given_slot(peer)
        if (life, number) == before:
            return [forget, Send(peer, answer, kept, again=True)]
        if life == before[0] and number < before[1]:
            return [forget, Send(peer, Message(CLOSED, round=number, term=life))]
        self.exchanges.given[peer] = life, number
        if self.empty:  # the other's model is this node's first
            both: list[Effect] = [Combine(slot, {event.slot: 1.0}) for slot in (MODEL, kept)]
            return [*both, forget, Send(peer, answer, kept), *self._begin(context)]
        mix = self._meet(event.slot, MODEL, peer)
        return [Combine(kept, {MODEL: 1.0}), Send(peer, answer, kept), *mix, forget, self.record]

    def _meet(self, new: str, old: str, peer: int) -> list[Effect]:
        self.moved = True
        return self.rule.meet(new, old, self.rule.weight(self.around, peer))


class Turns(PairNode):
    """A node that trains, then offers its model to one neighbour or to all of them.

    With `overlap` it trains on at once while its offer and the answer are on the way, and offers nothing else before
    the answer is there: with many late answers at once, averaging would overshoot. Without it, it waits for the answer
    and trains on what came of it.
    """

    __slots__ = ("everyone", "overlap")

    def __init__(
        self, around: NetworkView, rule: PairRule, patience: float | None, overlap: bool = False, everyone: bool = False
    ) -> None:
        """
        - `around`: what the node knows of the network.
        - `rule`: what happens to its models.
        - `patience`: seconds to wait for the first answers; None: nothing is ever lost.
        - `overlap`: whether it trains on while it waits for an answer.
        - `everyone`: whether it offers its model to all neighbours, not to a random one.
        """
        super().__init__(around, rule, patience)
        self.overlap, self.everyone = overlap, everyone

    def passed(self, now: float) -> list[Effect]:
        return []

    def trained(self, context: Context) -> list[Effect]:
        """The update is applied to the model of now, which others may have moved meanwhile."""
        learned = [*self.rule.learn(self.moved), self.record]
        if self.exchanges.awaited:
            return [*learned, *self.go_on(context)]
        partners = self.free if self.everyone else self.partner(context)
        return [*learned, *self.offer(partners, context.now), *self.go_on(context)]

    def talk(self, context: Context) -> list[Effect]:
        return []  # it offers after its trainings

    def go_on(self, context: Context) -> list[Effect]:
        if self.empty or self.leaving or self.training or (not self.overlap and self.exchanges.awaited):
            return []
        self.training, self.moved = True, False
        return [self.rule.train(context)]


def offered_slot(peer: int) -> str:
    """The slot of what was offered to a neighbour in an exchange that is open."""
    return f"open/{peer}"


def given_slot(peer: int) -> str:
    """The slot of what was answered to a neighbour's last offer."""
    return f"given/{peer}"


def _about(kind: str, exchange: Exchange) -> Message:
    return Message(kind, round=exchange.number, term=exchange.incarnation)
