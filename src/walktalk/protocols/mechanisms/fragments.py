"""A server in rounds that overlap with the training: a fragment of the model is exchanged after each, in its turn.

Fragment p of P has every P-th parameter, from the p-th on, and zeros around it. After training k a node sends the
server what it has changed of fragment k mod P; what the server makes of it is mixed in δ trainings later, and awaited
only then. What the server makes of the changes an algorithm says in a `FragmentRule`.

Resilient, the server closes one training after the other, as in `server`: it waits for everybody's change after it,
but not of those that die, that say that they have none, whose change is known to be lost, or that are late. A node that
did not get the server's fragment goes on without it, and shows no change of that fragment until it has the next one:
what it changed before is counted already. That next one it takes whole. One that lags behind goes to the number of what
it gets from the server; so does one that was dead, which waits for that. One that joins takes all fragments, one after
the other, before it trains; one that leaves for good shows what its last training changed. While the server is dead all
wait. When it is back it begins a new life, under a name of its own, in which all that it hears of earlier ones is too
late; momenta begin anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from walktalk.protocols.effects import (
    AGGREGATE,
    INITIAL,
    MEMBER,
    Arrival,
    Combine,
    Decode,
    Effect,
    Encode,
    Forget,
    Message,
    Note,
    Record,
    Send,
    Train,
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
from walktalk.protocols.machine import Context, Machine, NetworkView
from walktalk.protocols.mechanisms.attendance import Cohort
from walktalk.protocols.mechanisms.server import ABSENCE, ABSENT, CHANGE, MODEL, ServerProtocol

PACKED, OWN, WHOLE = "packed", "own", "whole"  # a fragment in code, a node's own one, all of the server's


def codec_of(fragment: int, fragments: int) -> str:
    """What cuts a fragment out."""
    return f"part({fragment}, {fragments})"


def outer_slot(fragment: int) -> str:
    """Where a node has the server's fragment."""
    return f"outer/{fragment}"


@dataclass(frozen=True)
class FragmentProtocol(ServerProtocol):
    """A protocol with a server that exchanges a fragment of the model after each training, by a `FragmentRule`."""

    @abstractmethod
    def rule(self) -> FragmentRule:
        """What becomes of a fragment; one rule for each node."""

    @property
    def messages(self) -> Mapping[str, Arrival]:
        count = self.rule().count
        kinds = [(f"{way}_{p}", codec_of(p, count)) for p in range(count) for way in ("up", "down")]
        models = {kind: Arrival(f"{kind}/{{round}}/{{sender}}", codec=codec) for kind, codec in kinds}
        return {**models, **ABSENCE} if self.resilient else models

    def machine(self, network_view: NetworkView) -> Machine:
        kind = FragmentServer if network_view.node == self.server else FragmentClient
        return kind(network_view, self.rule(), self.server, Cohort(self.patience if self.resilient else None))


class FragmentRule(ABC):
    """What becomes of a fragment at the server, and how much of it a node mixes in.

    Args:
        count: how many fragments there are, P.
        delay: how many trainings later what came of one is mixed in, δ.
        share: how much of the server's fragment a node takes then.
        train: what every node does all the time.
    """

    __slots__ = ("count", "delay", "share", "train")

    def __init__(self, count: int, delay: int, share: float, train: Train) -> None:
        self.count, self.delay, self.share, self.train = count, delay, share, train

    @abstractmethod
    def step(self, fragment: int, changes: Mapping[str, float]) -> list[Effect]:
        """Bring `outer_slot(fragment)` up to date, at the server, with everybody's change, by weights of sum 1."""


class FragmentNode(Machine):
    """What the server and all others do: train, and mix in fragments when their time has come."""

    __slots__ = (
        "around", "base", "cohort", "done", "here", "leaving", "life", "lost", "rule", "server", "since", "training",
    )  # fmt: skip

    def __init__(self, around: NetworkView, rule: FragmentRule, server: int, cohort: Cohort) -> None:
        self.around, self.rule, self.server, self.cohort = around, rule, server, cohort
        self.training, self.leaving = False, False
        self.life = 0  # of the server
        self.done = 0  # trainings, by the server's count
        self.since = 0  # the first training whose fragment of the server may be awaited
        self.here: set[int] = set()  # trainings whose fragment of the server is here, and not mixed in yet
        self.lost: set[int] = set()  # those whose fragment will not come
        self.base: dict[int, int] = {}  # fragment -> the training after which the server made what was mixed in last

    @abstractmethod
    def follows(self, training: int) -> bool:
        """Whether this node has what the server made of the same fragment the last time."""

    def refused(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """What is no fragment is as good as lost."""
        return self.missed(sender, message, context)

    def keepsake(self) -> bytes:
        return self.done.to_bytes(8, "little")

    def may_go(self) -> bool:
        """When it has shown what its last training changed."""
        return not self.training

    def _of(self, training: int) -> int:
        """The fragment that is exchanged after a training."""
        return training % self.rule.count

    def _record(self) -> Effect:
        return Record(MEMBER, self.around.node, MODEL)

    def _begin(self) -> list[Effect]:
        """Everybody has the initial model, and all fragments of it."""
        cuts = [effect for p in range(self.rule.count) for effect in self._cut(INITIAL, p, outer_slot(p))]
        return [Combine(MODEL, {INITIAL: 1.0}), self._record(), *cuts]

    def _encode(self, slot: str, fragment: int) -> Effect:
        return Encode(slot, PACKED, codec_of(fragment, self.rule.count))

    def _cut(self, slot: str, fragment: int, into: str) -> list[Effect]:
        """Set a slot to a fragment of another."""
        return [self._encode(slot, fragment), Decode(PACKED, into), Forget(PACKED)]

    def _changed(self, fragment: int) -> Effect:
        """Set `CHANGE` to what this node has changed of a fragment; its statistics are the trained model's."""
        return Combine(CHANGE, {MODEL: 1.0, outer_slot(fragment): -1.0}, {MODEL: 1.0})

    def _learned(self) -> list[Effect]:
        self.training = False
        self.done += 1
        return [apply_update(MODEL), self._record()]

    def _due(self) -> int:
        """The training whose fragment is to be mixed in before the next one."""
        return self.done - 1 - self.rule.delay

    def _train_on(self) -> list[Effect]:
        """Mix in the fragment whose time has come, and train on; or wait for it, while it may come."""
        due = self._due()
        passed = due in self.lost or due in self.here or (self.cohort.survives and max(self.here, default=-1) > due)
        if self.training or self.leaving or (due >= self.since and not passed):
            return []
        self.training = True
        mixed = self._mix(due) if due in self.here else []
        self.here = {number for number in self.here if number > due}
        self.lost = {number for number in self.lost if number > due}
        return [*mixed, self.rule.train]

    def _mix(self, training: int) -> list[Effect]:
        """Take as much of the server's fragment as the rule says, or all of it, and leave the rest of this node's."""
        p = self._of(training)
        share = self.rule.share if self.follows(training) else 1.0
        self.base[p] = training
        mixed = Combine(MODEL, {MODEL: 1.0, outer_slot(p): share, OWN: -share})
        return [*self._cut(MODEL, p, OWN), mixed, self._record()]


class FragmentClient(FragmentNode):
    """A node around the server."""

    __slots__ = ("empty",)

    def __init__(self, around: NetworkView, rule: FragmentRule, server: int, cohort: Cohort) -> None:
        super().__init__(around, rule, server, cohort)
        self.empty = False  # whether it has joined, and not all fragments yet

    def handle(self, event: Event, context: Context) -> list[Effect]:
        match event:
            case Received():
                return [*self._receive(event), *self._train_on()]
            case Trained():
                return [*self._learned(), *self._show(self.done - 1), *self._train_on()]
            case Started(late=False):
                self.base = {p: p - self.rule.count for p in range(self.rule.count)}
                return [*self._begin(), *self._train_on()]
            case Started() | Rejoined(memory=b""):
                self.empty = True
            case Rejoined(memory):
                self.done = int.from_bytes(memory, "little")
                self.since = max(self._due(), 0)  # where it waited for the server it waits again: nobody is further
                return [self._record(), *self._train_on()]
            case NetworkChanged(around):
                self.around = around
            case Leaving():
                self.leaving = True
        return []

    def missed(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """Go on without it."""
        if message.term == self.life:
            self.lost.add(message.round)
        return self._train_on()

    def keepsake(self) -> bytes:
        return b"" if self.empty else super().keepsake()

    def follows(self, training: int) -> bool:
        return self.base.get(self._of(training)) == training - self.rule.count

    def _train_on(self) -> list[Effect]:
        return [] if self.empty else super()._train_on()

    def _show(self, training: int) -> list[Effect]:
        """Send the server what this node has changed of a fragment, or that it cannot tell."""
        p = self._of(training)
        if not self.follows(training):
            return [self._say_absent(training)]
        send = Send(self.server, Message(f"up_{p}", round=training, term=self.life), PACKED)
        return [self._changed(p), self._encode(CHANGE, p), send, Forget(PACKED)]

    def _say_absent(self, training: int) -> Effect:
        return Send(self.server, Message(ABSENT, round=training, term=self.life))

    def _receive(self, event: Received) -> list[Effect]:
        training, life = event.message.round, event.message.term
        p, new = self._of(training), f"new/{training}"
        if event.sender != self.server or event.message.kind != f"down_{p}":
            raise ValueError(f"{event.sender} sends {event.message.kind!r} of training {training}")
        over = training in self.here or training < self._due() + self.training  # its time
        if life == self.life and over and not self.empty:
            return [Forget(event.slot)]
        behind: list[Effect] = []
        if life != self.life or training >= self.done:  # the others went on without this node
            behind = [Note("catches_up", number=training)]
            self._go_to(life, training)
        self.here.add(training)
        into = Combine(outer_slot(p), {new: 1.0})
        taken: list[Effect] = [*behind, Decode(event.slot, new), Forget(event.slot), into, Forget(new)]
        return [*taken, *self._fill(training)] if self.empty else taken

    def _fill(self, training: int) -> list[Effect]:
        """One that joins has another fragment of the model; with the last one it takes part."""
        self.base[self._of(training)] = training
        self.here.discard(training)
        self.since = training + 1
        self.empty = len(self.base) < self.rule.count
        if self.empty:
            return [self._say_absent(training + 1)]
        return [Combine(MODEL, {outer_slot(p): 1.0 for p in range(self.rule.count)}), self._record()]

    def _go_to(self, life: int, training: int) -> None:
        """To what the server made after that training; a training under way counts as the next one."""
        if life != self.life:
            self.base.clear()
        self.life, self.done, self.since = life, training + 1, training
        self.here, self.lost = set(), set()


class FragmentServer(FragmentNode):
    """The server, which trains, too."""

    __slots__ = ("closed",)

    def __init__(self, around: NetworkView, rule: FragmentRule, server: int, cohort: Cohort) -> None:
        super().__init__(around, rule, server, cohort)
        self.closed = 0  # trainings before this one are

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Rejoined) or (isinstance(event, Started) and event.late):
            self.life = context.random.getrandbits(30) + 1
        effects = self._happened(event)
        return [*effects, *self._close(context.now), *self._train_on()]

    def missed(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """A change is lost, or the word that there is none."""
        if message.term == self.life and message.round >= self.closed:
            self.cohort.has_none(sender, message.round)
        return [*self._close(context.now), *self._train_on()]

    def follows(self, training: int) -> bool:
        return True  # it made them all

    def _happened(self, event: Event) -> list[Effect]:
        cohort = self.cohort
        match event:
            case Received():
                return self._receive(event)
            case Trained():
                learned, training = self._learned(), self.done - 1
                p, slot = self._of(training), f"mine/{training}"
                cohort.come(training, self.around.node, slot)
                return [*learned, self._changed(p), *self._cut(CHANGE, p, slot)]
            case TimerFired():
                return cohort.too_late(self.closed, 1) if self.closed < self.done else []
            case PeerLost(peer):
                cohort.attendance.lost(peer)
            case PeerFound(peer):
                cohort.found(peer)
            case NetworkChanged(around):
                cohort.change(self.around.neighbours, around.neighbours)
                self.around = around
            case Started():
                return [*self._begin(), *self._put_out()]
            case Rejoined(memory):
                self.done = self.since = self.closed = int.from_bytes(memory, "little")
                return [self._record(), *self._put_out()]
        return []

    def _train_on(self) -> list[Effect]:
        effects = super()._train_on()
        if effects:  # a training has begun, and with it the round in which the others' changes are awaited
            self.cohort.ask(self.done, (peer for peer in self.around.neighbours if peer not in self.around.leaving))
        return effects

    def _receive(self, event: Received) -> list[Effect]:
        peer, kind, training = event.sender, event.message.kind, event.message.round
        told, now = kind in (ABSENT, f"up_{self._of(training)}"), event.message.term == self.life
        if not told or (now and training > self.closed + self.rule.delay):  # nobody is further
            raise ValueError(f"{peer} sends {kind!r} of training {training}")
        if not now:
            return [Forget(event.slot)] if event.slot else []
        if training >= self.closed - 1 - self.rule.delay:  # it has, or is about to get, what it needs to go on
            self.cohort.attendance.speaks(peer)
        if training < self.closed:
            return [Forget(event.slot)] if event.slot else []
        if kind == ABSENT:
            self.cohort.has_none(peer, training)
            return []
        slot = f"new/{training}/{peer}"
        self.cohort.come(training, peer, slot)
        return [Decode(event.slot, slot), Forget(event.slot)]

    def _close(self, now: float) -> list[Effect]:
        """Outer steps, in order, while everything that is awaited is here."""
        effects: list[Effect] = []
        while self.closed < self.done:
            effects += self.cohort.wait(now)
            if self.cohort.missing(self.closed, 1):
                break
            training, self.closed = self.closed, self.closed + 1
            self.here.add(training)
            effects += self._step(training, self.cohort.close(training, now))
        return effects

    def _step(self, training: int, changes: list[str]) -> list[Effect]:
        """Bring a fragment up to date with everybody's change, all of which count alike, and send it out."""
        p = self._of(training)
        out = self.cohort.attendance.cut | self.around.leaving
        there = [peer for peer in self.around.neighbours if peer not in out]
        sends = [Send(peer, Message(f"down_{p}", round=training, term=self.life), PACKED) for peer in there]
        step = self.rule.step(p, dict.fromkeys(changes, 1.0 / len(changes)))
        forget = [Forget(PACKED), *(Forget(one) for one in changes)]
        return [*step, self._encode(outer_slot(p), p), *sends, *forget, *self._put_out()]

    def _put_out(self) -> list[Effect]:
        """All fragments together are the model that the algorithm puts out."""
        return [Combine(WHOLE, {outer_slot(p): 1.0 for p in range(self.rule.count)}), Record(AGGREGATE, 0, WHOLE)]
