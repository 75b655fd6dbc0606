"""What protocols with two free loops a node share: one trains on and on, the other talks to neighbours, unhindered.

The talking loop offers the model to a random neighbour, waits for the answer and some random time, and begins again: as
many exchanges for each training as the protocol says. Waiting times are exponential, so exchanges along a link are
nearly a Poisson process. An exchange is that of `async_gossip`: the other answers with its model of before, and both
add the same part of the difference, with opposite signs. What a node does to its models at each event, a `Mixer` says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from walktalk.protocols.effects import INITIAL, MEMBER, Combine, Effect, Forget, Record, Send, SetTimer, Train
from walktalk.protocols.events import Event, Received, Started, TimerFired, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message

MODEL, OFFERED = "model", "offered"
MESSAGES = {"offer": Arrival("offer/{sender}", once=True), "answer": Arrival("answer/{sender}", once=True)}
WEIGHT = 1 / 8  # of the newest training in the mean time of one


class Mixer(ABC):
    """What happens to a node's models; the one that is trained, sent and put out is in slot `MODEL`."""

    __slots__ = ()

    @abstractmethod
    def begin(self) -> list[Effect]:
        """When the initial model is in `MODEL`."""

    @abstractmethod
    def drift(self, elapsed: float) -> list[Effect]:
        """Before anything else: what has happened by itself in so many times that a training takes."""

    @abstractmethod
    def learn(self, moved: bool) -> list[Effect]:
        """A training is done; `moved`: others were mixed in meanwhile."""

    @abstractmethod
    def meet(self, new: str, old: str) -> list[Effect]:
        """An exchange: the other's model is in one slot, this node's own, as the other saw it, in the other."""


class FreeLoops(Machine):
    """One node."""

    __slots__ = ("around", "began", "mixer", "moved", "pace", "seen", "steps", "talks")

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
        self.moved = False

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Started):
            self.began = self.seen = outside.now
            return [Combine(MODEL, {INITIAL: 1.0}), *self.mixer.begin(), self._record(), self._train()]
        drift = self._drift(outside.now)
        if isinstance(event, Trained):
            return [*drift, *self._learn(outside)]
        if isinstance(event, TimerFired):
            return [*drift, *self._offer(outside)]
        if isinstance(event, Received):
            return [*drift, *(self._answer(event) if event.message.kind == "offer" else self._take(event, outside))]
        return []

    def _drift(self, now: float) -> list[Effect]:
        elapsed = (now - self.seen) / self.pace if self.pace else 0.0
        self.seen = now
        return self.mixer.drift(elapsed) if elapsed > 0 else []

    def _record(self) -> Effect:
        return Record(MEMBER, self.around.node, MODEL)

    def _train(self) -> Effect:
        self.moved = False
        return Train(MODEL, steps=self.steps)

    def _learn(self, outside: Outside) -> list[Effect]:
        took, first = outside.now - self.began, not self.pace
        self.pace += took if first else WEIGHT * (took - self.pace)
        self.began = outside.now
        learned = self.mixer.learn(self.moved)
        return [*learned, self._record(), self._train(), *(self._talk_later(outside) if first else [])]

    def _talk_later(self, outside: Outside) -> list[Effect]:
        if not self.around.neighbours:
            return []
        return [SetTimer("talk", outside.random.expovariate(self.talks / self.pace))]

    def _offer(self, outside: Outside) -> list[Effect]:
        peers = self.around.neighbours
        peer = peers[int(outside.random.random() * len(peers))]
        return [Combine(OFFERED, {MODEL: 1.0}), Send(peer, Message("offer"), MODEL)]

    def _answer(self, event: Received) -> list[Effect]:
        self.moved = True
        mix = self.mixer.meet(event.slot, MODEL)
        return [Send(event.sender, Message("answer"), MODEL), *mix, Forget(event.slot), self._record()]

    def _take(self, event: Received, outside: Outside) -> list[Effect]:
        self.moved = True
        mix = self.mixer.meet(event.slot, OFFERED)
        return [*mix, Forget(event.slot), Forget(OFFERED), self._record(), *self._talk_later(outside)]
