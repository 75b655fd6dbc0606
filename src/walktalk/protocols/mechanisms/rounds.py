"""Rounds between neighbours: train, send, wait for everybody whom one hears, mix, and train again.

An algorithm says in a `Rule` what it trains, sends and mixes; `RoundNode` is the node that goes by it. Nobody waits for
more than those it hears, so a node can be ahead of another by as many rounds as there are links between them.

Where nodes and messages may be lost (`resilient`), a message is left out of a round when this node notices that it was
lost, when the runtime says that its sender is lost, when the sender is in a later round already, or when it is later
than neighbours ever were (`attendance`). What a rule makes of that is its own: an average leaves the weight with the
node itself, RelaySGD counts what is in a sum. A node that comes back, or lags behind, goes to the round of those that
it hears, with the model that it has; what else it knew (momenta, drifts, trackers) begins anew after a death.

Nodes may join and leave while it runs. One that joins waits for the first model that it hears, and takes it and its
round. One that leaves just goes: nobody waits for it any more. All others go by the new network from the next round on,
each when it hears of it, and mix only with those that go by the same (`Meeting.there`). Rules that keep something of
others, such as trackers, begin anew then (`Rule.begins_anew`): so what holds for them in sum holds again afterwards.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Gt

from walktalk.core.errors import SpecError
from walktalk.protocols.effects import (
    INITIAL,
    MEMBER,
    Arrival,
    Combine,
    Differentiate,
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
from walktalk.protocols.machine import Context, Machine, NetworkView, Protocol
from walktalk.protocols.mechanisms.attendance import LAST, Attendance
from walktalk.protocols.mechanisms.meeting import MODEL, Links, Meeting, arrivals
from walktalk.protocols.self_description import InLabel

BEGIN = "begin"  # timer: one that joins has heard of no model
LONG = 10.0  # times the patience with a neighbour: so long one that joins waits for its first model
NO_MODEL = b"\0"  # the keepsake of one that has none yet


class Rule(ABC):
    """What an algorithm does in a round. The model that a node trains and puts out is in slot `MODEL`."""

    __slots__ = ()

    begins_anew: ClassVar[bool] = False  # whether it does so when nodes come or go: what it keeps is of the old network
    adopts: ClassVar[bool] = True  # whether one that joins can begin with what it hears first; else: the initial model

    def begin(self) -> list[Effect]:
        """Before the first round of a life, with a model in `MODEL`: the initial one, an adopted one, or its last."""
        return []

    def member(self, meeting: Meeting) -> int:
        """Which of the models that are to agree the node has in this round: its own, where nodes keep theirs."""
        return meeting.around.node

    def announce(self, meeting: Meeting) -> list[Effect]:
        """What is sent at the beginning of a round, before the training."""
        return []

    def work(self) -> Train | Differentiate:
        """The training or the gradient of a round."""
        return Train(MODEL)

    @abstractmethod
    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        """That is done: take it in, and send what the others are to have."""

    @abstractmethod
    def mix(self, meeting: Meeting) -> list[Effect]:
        """Everybody's is here, but for what is lost: set `MODEL` to what the next round begins with."""

    def add(self, event: Received, note: Any, meeting: Meeting) -> list[Effect]:
        """What came is of a round that this node has done, and `check` read this note: perhaps wait for no others."""
        return []

    def check(self, kind: str, note: bytes) -> Any:
        """Read the note of a message before anything is made of it; an error refuses the message.

        What is returned is what `Meeting.said` and `adopt` give; for no note or a free one the bytes themselves.
        """
        return note

    def push_on(self, meeting: Meeting) -> list[Effect]:
        """What is sent in this round in place of training first, where there are several rounds to a training."""
        return []

    def adopt(self, kind: str, slot: str, note: Any) -> list[Effect]:
        """Set `MODEL` from the first message of the first kind that one that joins hears, and what `check` read."""
        return [Combine(MODEL, {slot: 1.0})]


class RoundNode(Machine):
    """One node that goes by a rule. Without `attendance` nothing is ever lost, and it waits for everybody."""

    __slots__ = (
        "attendance",
        "changed",
        "empty",
        "lags",
        "latest",
        "longest",
        "meeting",
        "protocol",
        "rule",
        "trained",
    )

    def __init__(self, protocol: Protocol, meeting: Meeting, rule: Rule, patience: float | None = None) -> None:
        """
        - `protocol`: makes the node anew where the network changes.
        - `meeting`, `rule`: what the node does in a round, and with whom.
        - `patience`: seconds to wait for late neighbours at first; None: nothing is ever lost.
        """
        self.protocol, self.meeting, self.rule = protocol, meeting, rule
        self.attendance = None if patience is None else Attendance(patience, meeting.cut)
        self.longest = LONG * (patience or 0.0)  # how long it waits for its first model, if it joins
        self.trained = False  # whether this node has done its part of the round
        self.lags = False  # whether the others have gone ahead in the training under way already
        self.empty = False  # whether it has joined, and has no model yet
        self.latest: dict[int, int] = {}  # the highest round that was heard of each sender
        self.changed: NetworkView | None = None  # the network from the next round on, where that is another

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Received):
            if self.attendance is not None:
                return self._received(event, self.attendance, context.now)
            if event.message.term != self.meeting.around.version:  # here nobody comes or goes
                raise ValueError(f"network {event.message.term}; this is {self.meeting.around.version}")
            return [*self._put_in(event, self._read(event.message)), *self._finish(context.now)]
        if isinstance(event, Trained):
            self.trained, self.lags = True, False
            learned = self.rule.learn(event, self.meeting)
            return [*learned, *self._wait(context.now), *self._finish(context.now)]
        if isinstance(event, Started) and not event.late:
            return [Combine(MODEL, {INITIAL: 1.0}), *self._begin()]
        return [] if self.attendance is None else self._happened(event, self.attendance, context.now)

    def keepsake(self) -> bytes:
        return NO_MODEL if self.empty else self.meeting.round.to_bytes(4, "little")

    # -- rounds -----------------------------------------------------------------------------------------------------

    def _begin(self) -> list[Effect]:
        """The first round of a life."""
        return [*self.rule.begin(), *self._begin_round()]

    def _begin_round(self) -> list[Effect]:
        """Any round, with the model that the last one left."""
        record = Record(MEMBER, self.rule.member(self.meeting), MODEL)
        return [record, *self.rule.announce(self.meeting), self.rule.work()]

    def _finish(self, now: float) -> list[Effect]:
        """End the round, if everything is here; perhaps also those after it."""
        effects: list[Effect] = []
        while self.trained and self._has_all():
            if self.attendance is not None:
                self.attendance.complete(now)
            effects += self._end_round(self.meeting.round + 1)
            further = self.rule.push_on(self.meeting)
            self.trained = bool(further)  # then there is another round before the next training
            effects += [*further, *self._wait(now)] if further else self._begin_round()
        return effects

    def _end_round(self, after: int) -> list[Effect]:
        """Mix what is there, and go to another round; where the network has changed, by the new one."""
        mixed = [*self.rule.mix(self.meeting), *self.meeting.go_to(after)]
        return [*mixed, *self._go_by_new_network()] if self.changed is not None else mixed

    def _put_in(self, event: Received, note: Any) -> list[Effect]:
        """Write down what has come; if this node has done that round, the rule may make something of it at once."""
        message, meeting = event.message, self.meeting
        known = message.round in meeting.came and (message.kind, event.sender) in meeting.came[message.round]
        meeting.receive(event.sender, message, note)
        if known or message.round >= meeting.round + self.trained or message.term != meeting.around.version:
            return []
        return self.rule.add(event, note, meeting)

    def _has_all(self) -> bool:
        return self.meeting.is_complete() if self.attendance is None else not self._missing(self.attendance)

    def _wait(self, now: float) -> list[Effect]:
        """This node has done its part: from now on it waits for others."""
        return [] if self.attendance is None else [self.attendance.wait(now)]

    # -- where nodes and messages are lost --------------------------------------------------------------------------

    def _happened(self, event: Event, who: Attendance, now: float) -> list[Effect]:
        """Whatever else can happen to a node."""
        match event:
            case TimerFired(name) if name == BEGIN:
                return self._begin_with_initial() if self.empty else []
            case TimerFired():
                missing = sorted(set(self._missing(who))) if self.trained else []
                return [*who.leave_out(missing, self.meeting.round), *self._finish(now)]
            case PeerLost(peer):
                who.lost(peer)
                return self._finish(now)
            case PeerFound(peer):
                who.found(peer)
                # It was sent nothing at the beginning of this round, and is to know how far the others are.
                announced = [] if self.empty else self.rule.announce(self.meeting)
                return [effect for effect in announced if isinstance(effect, Send) and effect.to == peer]
            case NetworkChanged(around):
                return self._change(around, who, now)
            case Started() if not self.rule.adopts or self.meeting.fragments > 1:
                return self._begin_with_initial()
            case Started() | Rejoined(memory=b"\0"):
                self.empty = True
                return [SetTimer(BEGIN, self.longest)]
            case Rejoined(memory):
                self.meeting.go_to(int.from_bytes(memory, "little"))
                self._wait_for_none(who)
                return self._begin()
            case _:  # one that leaves just goes: what it knows has been sent
                return []

    def missed(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """The round goes on without a message that was lost."""
        if self.attendance is None or self.empty:
            return []
        self.meeting.miss(sender, message)
        return self._finish(context.now)

    def refused(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """What is no model is as good as lost."""
        return self.missed(sender, message, context)

    def _wait_for_none(self, who: Attendance) -> None:
        """Until they speak: whoever took this node for dead has sent it nothing."""
        around = self.meeting.around
        who.absent.update(around.neighbours, around.sources)

    def _begin_with_initial(self) -> list[Effect]:
        """Nobody has a model for one that joins, or its rule needs none of others."""
        self.empty = False
        if self.attendance is not None:
            self._wait_for_none(self.attendance)
        return [Combine(MODEL, {INITIAL: 1.0}), *self._begin()]

    def _received(self, event: Received, who: Attendance, now: float) -> list[Effect]:
        peer, message, meeting = event.sender, event.message, self.meeting
        if not (meeting.expects(peer, message) or meeting.is_of_other_network(message)):
            raise ValueError(f"{peer} does not meet this node in round {message.round}")
        note = self._read(message)
        if self.empty:
            return self._adopt(event, note, who)
        hears = {*meeting.around.neighbours, *meeting.around.sources}
        if not who.believes(peer, message.round, meeting.round, hears):
            return [Forget(event.slot), Note("disbelieved", peer=peer, number=message.round)]
        self.latest[peer] = max(message.round, self.latest.get(peer, 0))
        caught_up = self._catch_up(message.round, who) if message.round > meeting.round + self._most_ahead() else []
        who.speaks(peer)
        if message.round < meeting.awaited:
            return [Forget(event.slot)]
        return [*caught_up, *self._put_in(event, note), *self._finish(now)]

    def _read(self, message: Message) -> Any:
        """What a message's note says; `ValueError` where a round is none, or the rule cannot read the note."""
        if not 0 <= message.round <= LAST:
            raise ValueError(f"round {message.round} is not possible; allowed: 0 to {LAST}")
        try:
            return self.rule.check(message.kind, message.note)
        except struct.error as error:
            raise ValueError(f"a note of {len(message.note)} bytes with {message.kind!r}: {error}") from None

    def _missing(self, who: Attendance) -> list[int]:
        """Senders of which something of this round may still come; one that is further sends it no more."""
        out, meeting = who.out, self.meeting
        return [p for p in meeting.missing() if p not in out and self.latest.get(p, -1) <= meeting.awaited]

    def _most_ahead(self) -> int:
        """Rounds that others may be ahead of a node that does not lag."""
        around = self.meeting.around
        two_way = around.rounds is None and around.heard is None  # then nobody goes on without this node's last
        return (1 + self.meeting.delay) * (1 if two_way else around.nodes)

    def _catch_up(self, number: int, who: Attendance) -> list[Effect]:
        """The others are ahead: join them with the model of now; a training under way counts for that round.

        Where they go ahead again in the same training, nothing is said: whoever hears of it would wait for the rest.
        """
        note = Note("catches_up", number=number)
        self._wait_for_none(who)
        if not self.trained:
            said = [] if self.lags else self.rule.announce(self.meeting)
            self.lags = True
            return [*self.meeting.go_to(number), note, *said]
        self.trained = False
        return [*self._end_round(number), note, *self._begin_round()]

    # -- where nodes come and go ------------------------------------------------------------------------------------

    def _adopt(self, event: Received, note: Any, who: Attendance) -> list[Effect]:
        """Begin with the first model that is heard of, and in its round, or in the next if that has been trained in."""
        message, meeting = event.message, self.meeting
        if message.kind != meeting.kinds[0]:
            return [Forget(event.slot)]
        adopted = [*self.rule.adopt(message.kind, event.slot, note), Forget(event.slot)]
        self.empty, meeting.round = False, message.round
        self._wait_for_none(who)
        if not self.rule.announce(meeting):
            meeting.round += 1
        return [*adopted, *self._begin()]

    def _change(self, around: NetworkView, who: Attendance, now: float) -> list[Effect]:
        """Nodes have come or left: nobody waits for those that are gone, and new neighbours count as lost at first."""
        known = self.changed or self.meeting.around
        before, after = set(known.neighbours), set(around.neighbours)
        who.cut |= (before ^ after) | around.leaving
        self.changed = around
        if self.empty:
            self._go_by_new_network()
            return []
        if self.meeting.around.rounds is not None:  # those that know it already have drawn others to send to
            self._wait_for_none(who)
        return self._finish(now)

    def _go_by_new_network(self) -> list[Effect]:
        """What the protocol makes for the network of now takes the place of what it made for the one before."""
        assert self.changed is not None
        fresh = self.protocol.machine(self.changed)
        assert isinstance(fresh, RoundNode)
        fresh.meeting.continue_from(self.meeting)
        self.meeting, self.changed = fresh.meeting, None
        if not self.rule.begins_anew:
            return []
        self.rule = fresh.rule
        return [] if self.empty else self.rule.begin()


@dataclass(frozen=True, kw_only=True)
class NeighbourRounds(Protocol):
    """A protocol in rounds between neighbours.

    Args:
        resilient: whether it survives failures; if left out, where there may be any.
        patience: seconds to wait for late neighbours at first; after that it is known how late they are.
    """

    resilient: bool | None = None
    patience: Annotated[float, Gt(0), InLabel("")] = 10.0
    elastic: ClassVar[bool] = True

    family: ClassVar[str] = "gossip"
    kinds: ClassVar[tuple[str, ...]] = ("round",)  # of messages, one of each to everybody whom a node meets in a round
    mixes_once: ClassVar[bool] = True  # whether a model that comes is mixed into one slot only

    def __post_init__(self) -> None:
        if not self.patience > 0:
            raise SpecError(f"patience: {self.patience} is not possible; a number above 0 is needed")

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return arrivals(*self.kinds, once=self.mixes_once, fragments=self._fragments)

    @property
    def _fragments(self) -> int:
        """How many rounds it takes to send a model, a fragment in each: a setting that some have."""
        return int(self.settings.get("fragments", 1))

    @property
    def why_nodes_stay(self) -> str:
        parts = "with fragments one that joins hears only a part of the model in a round"
        return parts if self._fragments > 1 else super().why_nodes_stay

    def rule(self, around: NetworkView) -> Rule:
        """What one node does in a round; a protocol that says it need not say `machine`."""
        raise NotImplementedError(f"{type(self).__name__} says neither its rule nor its machine")

    def machine(self, network_view: NetworkView) -> Machine:
        return self.node(network_view, self.rule(network_view))

    def node(self, around: NetworkView, rule: Rule, links: Links | None = None, delay: int = 0) -> Machine:
        """One node that goes by a rule.

        Args:
            around: what the node knows of the network.
            rule: what the algorithm does in a round.
            links: for kinds of messages that go to some alone, to whom, and from whom they come.
            delay: how many rounds it may be ahead of the last of which it has everything.
        """
        meeting = Meeting(around, self.messages, links or {}, self._fragments, delay)
        return RoundNode(self, meeting, rule, self.patience if self.resilient else None)
