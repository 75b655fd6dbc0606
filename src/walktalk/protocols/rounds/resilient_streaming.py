"""Streaming DiLoCo where nodes and messages are lost: a fragment is made of those whose changes are there.

The server closes one training after the other. It waits for everybody's change after it, but not of those that die,
that say that they have none, whose change is known to be lost, or that take longer than others ever did (`attendance`).
Who was left out for being late is waited for again when it sends something of now. A node that did not get the server's
fragment goes on without it, and shows no change of that fragment until it has the next one: what it changed before is
counted already. That next one it takes whole. One that lags behind goes to the number of what it gets from the server;
so does one that was dead, which waits for that. While the server is dead all wait. When it is back it begins a new
life, under a name of its own, in which all that it hears of earlier ones is too late; momenta begin anew.
"""

from __future__ import annotations

from abc import abstractmethod

from walktalk.protocols.attendance import Attendance
from walktalk.protocols.effects import MEMBER, Decode, Effect, Forget, Note, Record, Send, Train, apply_update
from walktalk.protocols.events import Event, PeerFound, PeerLost, Received, Rejoined, Started, TimerFired, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Message
from walktalk.protocols.rounds.fragments import Fragments
from walktalk.protocols.rounds.resilient_server import ABSENT
from walktalk.protocols.server import CHANGE, MODEL


class StreamingMember(Machine):
    """What the server and all others do: train, and mix in fragments when their time has come."""

    __slots__ = (
        "around",
        "base",
        "delay",
        "done",
        "fragments",
        "here",
        "life",
        "lost",
        "server",
        "since",
        "train",
        "training",
    )

    def __init__(self, around: Surroundings, fragments: Fragments, train: Train, delay: int, server: int) -> None:
        self.around, self.fragments, self.train = around, fragments, train
        self.delay, self.server = delay, server
        self.training = False
        self.life = 0  # of the server
        self.done = 0  # trainings, by the server's count
        self.since = 0  # the first training whose fragment of the server may be awaited
        self.here: set[int] = set()  # trainings whose fragment of the server is here, and not mixed in yet
        self.lost: set[int] = set()  # those whose fragment will not come
        self.base: dict[int, int] = {}  # fragment -> the training after which the server made what was mixed in last

    @abstractmethod
    def follows(self, training: int) -> bool:
        """Whether this node has what the server made of the same fragment the last time."""

    def refused(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """What is no fragment is as good as lost."""
        return self.missed(sender, message, outside)

    def keepsake(self) -> bytes:
        return self.done.to_bytes(8, "little")

    def _learned(self) -> list[Effect]:
        self.training = False
        self.done += 1
        return [apply_update(MODEL), Record(MEMBER, self.around.node, MODEL)]

    def _due(self) -> int:
        """The training whose fragment is to be mixed in before the next one."""
        return self.done - 1 - self.delay

    def _train_on(self) -> list[Effect]:
        """Mix in the fragment whose time has come, and train on; or wait for it, while it may come."""
        due = self._due()
        passed = due in self.lost or any(number >= due for number in self.here)
        if self.training or (due >= self.since and not passed):
            return []
        self.training = True
        mixed = self._mix(due) if due in self.here else []
        self.here = {number for number in self.here if number > due}
        self.lost = {number for number in self.lost if number > due}
        return [*mixed, self.train]

    def _mix(self, training: int) -> list[Effect]:
        p = self.fragments.of(training)
        share = 1.0 - self.fragments.alpha if self.follows(training) else 1.0
        self.base[p] = training
        return self.fragments.mix(p, self.around.node, share)


class StreamingClient(StreamingMember):
    """One of those around the server."""

    __slots__ = ()

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        match event:
            case Received():
                return [*self._take(event), *self._train_on()]
            case Trained():
                return [*self._learned(), *self._show(self.done - 1), *self._train_on()]
            case Started(late):
                if not late:
                    self.base = {p: p - self.fragments.count for p in range(self.fragments.count)}
                return [*self.fragments.begin(self.around.node), *self._train_on()]
            case Rejoined(memory):
                self.done = int.from_bytes(memory, "little")
                self.since = max(self._due(), 0)  # where it waited for the server it waits again: nobody is further
                return [Record(MEMBER, self.around.node, MODEL), *self._train_on()]
        return []

    def missed(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """Go on without it."""
        if message.term == self.life:
            self.lost.add(message.round)
        return self._train_on()

    def follows(self, training: int) -> bool:
        return self.base.get(self.fragments.of(training)) == training - self.fragments.count

    def _show(self, training: int) -> list[Effect]:
        if not self.follows(training):
            return [Send(self.server, Message(ABSENT, round=training, term=self.life))]
        return self.fragments.send_up(training, self.server, self.life)

    def _take(self, event: Received) -> list[Effect]:
        training, life = event.message.round, event.message.term
        if event.sender != self.server or event.message.kind != f"down_{self.fragments.of(training)}":
            raise ValueError(f"{event.sender} sends {event.message.kind!r} of training {training}")
        over = training in self.here or training < self._due() + self.training  # its time
        if life == self.life and over:
            return [Forget(event.slot)]
        behind: list[Effect] = []
        if life != self.life or training >= self.done:  # the others went on without this node
            behind = [Note("catches_up", number=training)]
            self._go_to(life, training)
        self.here.add(training)
        return [*behind, *self.fragments.take_down(training, event.slot)]

    def _go_to(self, life: int, training: int) -> None:
        """To what the server made after that training; a training under way counts as the next one."""
        if life != self.life:
            self.base.clear()
        self.life, self.done, self.since = life, training + 1, training
        self.here, self.lost = set(), set()


class StreamingServer(StreamingMember):
    """The server, which trains, too."""

    __slots__ = ("attendance", "came", "closed", "out")

    def __init__(
        self, around: Surroundings, fragments: Fragments, train: Train, delay: int, server: int, patience: float
    ) -> None:
        super().__init__(around, fragments, train, delay, server)
        self.closed = 0  # trainings before this one are
        self.came: dict[int, dict[int, str]] = {}  # training -> whose change after it is here -> its slot
        self.out: dict[int, set[int]] = {}  # training -> who has no change to show
        self.attendance = Attendance(patience)  # it waits for several trainings at once

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Rejoined) or (isinstance(event, Started) and event.late):
            self.life = outside.random.getrandbits(30) + 1
        effects = self._happened(event, outside.now)
        return [*effects, *self._close(outside.now), *self._train_on()]

    def missed(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """A change is lost, or the word that there is none."""
        if message.term == self.life:
            self._has_none(sender, message.round)
        return [*self._close(outside.now), *self._train_on()]

    def _happened(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Received():
                return self._take(event)
            case Trained():
                learned, training = self._learned(), self.done - 1
                return [*learned, *self._show(training), self.attendance.wait(now, training)]
            case TimerFired(name):
                return self._too_late(int(name.rpartition("/")[2]))
            case PeerLost(peer):
                self.attendance.lost(peer)
            case PeerFound(peer):
                self.attendance.found(peer)
            case Started():
                return [*self.fragments.begin(self.around.node), *self.fragments.put_out()]
            case Rejoined(memory):
                self.done = self.since = self.closed = int.from_bytes(memory, "little")
                return [Record(MEMBER, self.around.node, MODEL), *self.fragments.put_out()]
        return []

    @property
    def _others(self) -> list[int]:
        return [peer for peer in range(self.around.nodes) if peer != self.around.node]

    def follows(self, training: int) -> bool:
        return True  # it made them all

    def _show(self, training: int) -> list[Effect]:
        p, slot = self.fragments.of(training), f"mine/{training}"
        self.came.setdefault(training, {})[self.around.node] = slot
        return [self.fragments.change(p), *self.fragments.cut(CHANGE, p, slot)]

    def _take(self, event: Received) -> list[Effect]:
        peer, kind, training = event.sender, event.message.kind, event.message.round
        told, now = kind in (ABSENT, f"up_{self.fragments.of(training)}"), event.message.term == self.life
        if peer not in self._others or not told or (now and training > self.closed + self.delay):  # nobody is further
            raise ValueError(f"{peer} sends {kind!r} of training {training}")
        if not now:
            return [Forget(event.slot)] if event.slot else []
        if training >= self.closed - 1 - self.delay:  # it has, or is about to get, what it needs to go on
            self.attendance.speaks(peer)
        if kind == ABSENT:
            self._has_none(peer, training)
            return []
        if training < self.closed:
            return [Forget(event.slot)]
        slot = f"new/{training}/{peer}"
        self.came.setdefault(training, {})[peer] = slot
        return [Decode(event.slot, slot), Forget(event.slot)]

    def _has_none(self, peer: int, training: int) -> None:
        if training >= self.closed:
            self.out.setdefault(training, set()).add(peer)

    def _missing(self, training: int) -> list[int]:
        """Whose changes are awaited."""
        known = self.attendance.out | self.out.get(training, set()) | set(self.came.get(training, {}))
        return [peer for peer in self._others if peer not in known]

    def _too_late(self, training: int) -> list[Effect]:
        missing = self._missing(training) if training >= self.closed else []
        return self.attendance.leave_out(missing, training, training)

    def _close(self, now: float) -> list[Effect]:
        """Outer steps, in order, while everything that is awaited is here."""
        effects: list[Effect] = []
        while self.closed < self.done and not self._missing(self.closed):
            training, self.closed = self.closed, self.closed + 1
            self.attendance.complete(now, training)
            self.out.pop(training, None)
            self.here.add(training)
            there = [peer for peer in self._others if peer not in self.attendance.cut]
            effects += self.fragments.step(training, list(self.came.pop(training).values()), there, self.life)
        return effects
