"""What protocols with two free loops a node share: one trains on and on, the other talks to neighbours, unhindered.

The talking loop offers the model to a random neighbour, waits for the answer and some random time, and begins again: as
many exchanges for each training as the protocol says. Waiting times are exponential, so exchanges along a link are
nearly a Poisson process. An exchange is that of `async_gossip`: the other answers with its model of before, and both
add the same part of the difference, with opposite signs. What a node does to its models at each event, a `Mixer` says.
This file is for a world without failures; `resilient_loops` is the same for a world with them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from walktalk.protocols.effects import INITIAL, MEMBER, Combine, Effect, Forget, Record, Send, SetTimer, Train
from walktalk.protocols.events import Event, Received, Started, TimerFired, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message

MODEL, OFFERED = "model", "offered"
TALK = "talk"  # timer
MESSAGES = {"offer": Arrival("offer/{sender}", once=True), "answer": Arrival("answer/{sender}", once=True)}
REMEMBERED = 8  # trainings, about, over which the time of one is averaged


class Mixer(ABC):
    """What happens to a node's models; the one that is trained, sent and put out is in slot `MODEL`."""

    __slots__ = ()

    @abstractmethod
    def begin(self) -> list[Effect]:
        """With the initial model in `MODEL`, or the one that a node died with."""

    @abstractmethod
    def drift(self, elapsed: float) -> list[Effect]:
        """Before anything else: what has happened by itself in so many times that a training takes."""

    @abstractmethod
    def learn(self, moved: bool) -> list[Effect]:
        """A training is done; `moved`: others were mixed in meanwhile."""

    @abstractmethod
    def meet(self, new: str, old: str) -> list[Effect]:
        """An exchange: the other's model is in one slot, this node's own, as the other saw it, in the other."""


class Training:
    """The loop of a node that trains, and the clock of the other one."""

    __slots__ = ("around", "began", "done", "mixer", "moved", "pace", "seen", "steps", "talks", "unsure", "variance")

    def __init__(self, around: Surroundings, mixer: Mixer, steps: int, talks: float) -> None:
        """
        - `around`: what the node knows of the network.
        - `mixer`: what happens to its models.
        - `steps`: local steps of a training; 0: as many as the study says.
        - `talks`: exchanges that it begins for each training, on average.
        """
        self.around, self.mixer, self.steps, self.talks = around, mixer, steps, talks
        self.began = self.seen = 0.0  # when the training under way began; when the last event was
        self.pace = 0.0  # how long a training takes, on average; 0: nobody knows yet
        self.variance = 0.0  # of that time from training to training
        self.unsure = 0.0  # the share of it that the average has: 1 over how many trainings it is of
        self.done = 0  # trainings
        self.moved = False  # whether the model was mixed since the training under way began

    def begin(self, now: float) -> list[Effect]:
        """A life begins, with a model in `MODEL`."""
        self.began = self.seen = now
        return [*self.mixer.begin(), self.record(), self._train()]

    def drift(self, now: float) -> list[Effect]:
        """What has happened by itself since the last event."""
        elapsed = (now - self.seen) / self._usual(now) if self.pace else 0.0
        self.seen = now
        return self.mixer.drift(elapsed) if elapsed > 0 else []

    def record(self) -> Effect:
        """Show the model."""
        return Record(MEMBER, self.around.node, MODEL)

    def _train(self) -> Effect:
        self.moved = False
        return Train(MODEL, steps=self.steps)

    def learn(self, outside: Outside) -> list[Effect]:
        """A training is done: the next begins, and after the first one the talking, too."""
        took, first = outside.now - self.began, not self.pace
        self.done += 1
        self._remember(took, 1.0 / min(self.done, REMEMBERED))
        self.began = outside.now
        learned = self.mixer.learn(self.moved)
        return [*learned, self.record(), self._train(), *(self.talk_later(outside) if first else [])]

    def talk_later(self, outside: Outside) -> list[Effect]:
        """An exchange is over, or there was nobody to have one with."""
        if not self.around.neighbours:
            return []
        return [SetTimer(TALK, outside.random.expovariate(self.talks / self._usual(outside.now)))]

    def _remember(self, took: float, share: float) -> None:
        """One more training; `share`: what it counts for in the averages."""
        off = took - self.pace
        self.pace += share * off
        self.variance = (1.0 - share) * (self.variance + share * off**2)
        self.unsure = (1.0 - share) ** 2 * self.unsure + share**2

    def _usual(self, now: float) -> float:
        """How long a training takes: as the last ones did, and no less than the one under way has taken by now.

        Else a first one that happens to be very short lets a node talk without end until the second is over. Where
        trainings differ, an average of a few is below the truth as often as above it, and divided by, it makes too much
        of the first: 1/mean is too large by the share that the mean's variance has in its square (7 % of Poisson
        timing), so that the average is taken to be longer by as much.
        """
        mean = self.pace + self.unsure * self.variance / self.pace
        return max(mean, (now - self.began) / min(self.done, REMEMBERED))

    def meet(self, new: str, old: str) -> list[Effect]:
        """An exchange: the other's model, and this node's own as the other saw it."""
        self.moved = True
        return self.mixer.meet(new, old)


class FreeLoops(Machine):
    """One node."""

    __slots__ = ("around", "loop")

    def __init__(self, loop: Training) -> None:
        self.loop, self.around = loop, loop.around

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        loop = self.loop
        if isinstance(event, Started):
            return [Combine(MODEL, {INITIAL: 1.0}), *loop.begin(outside.now)]
        drift = loop.drift(outside.now)
        if isinstance(event, Trained):
            return [*drift, *loop.learn(outside)]
        if isinstance(event, TimerFired):
            return [*drift, *self._offer(outside)]
        if isinstance(event, Received):
            return [*drift, *(self._answer(event) if event.message.kind == "offer" else self._take(event, outside))]
        return []

    def _offer(self, outside: Outside) -> list[Effect]:
        peers = self.around.neighbours
        peer = peers[int(outside.random.random() * len(peers))]
        return [Combine(OFFERED, {MODEL: 1.0}), Send(peer, Message("offer"), MODEL)]

    def _answer(self, event: Received) -> list[Effect]:
        mix = self.loop.meet(event.slot, MODEL)
        return [Send(event.sender, Message("answer"), MODEL), *mix, Forget(event.slot), self.loop.record()]

    def _take(self, event: Received, outside: Outside) -> list[Effect]:
        mix = self.loop.meet(event.slot, OFFERED)
        return [*mix, Forget(event.slot), Forget(OFFERED), self.loop.record(), *self.loop.talk_later(outside)]
