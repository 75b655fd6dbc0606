"""OSGP, overlap stochastic gradient push (Assran, Loizou, Ballas, Rabbat 2019): SGP that does not wait for messages.

    x_i ← x_i − η g_i(z_i);   p_ji (x_i, w_i) is sent to all j that i reaches, p_ii (x_i, w_i) is kept
    (x_i, w_i) ← (x_i, w_i) + all that has come,    z_i = x_i / w_i           at any time, also during a training

A node goes on training while its shares and those of others are on the way, but never further than τ rounds beyond the
last of which it has everything: messages are τ rounds late at most. Σx and Σw are conserved, what is on the way
included, so lateness does no harm to the mean. With τ = 0 it is SGP, and where rows of P sum to one, too, D-PSGD. As in
the authors' code (facebookresearch/stochastic_gradient_push), shares of a round are weighed when they are sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.effects import INITIAL, MEMBER, UPDATE, Combine, Effect, Forget, Record, Send, Train
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Protocol, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.rounds.meeting import MODEL, arrivals
from walktalk.protocols.rounds.sgp import SHARE, SUM, weight_in, weight_note
from walktalk.protocols.self_description import Law

MESSAGES = arrivals("push")


@dataclass(frozen=True)
class OSGP(Protocol):
    """Nodes push shares of their models along one-way links, and train on while those are on the way.

    Args:
        delay: how many rounds late a message may be before a node waits for it, τ; 0: stochastic gradient push.
    """

    delay: Annotated[int, Ge(0)] = 1
    name: ClassVar[str] = "osgp"
    family: ClassVar[str] = "gossip"
    paper: ClassVar[str] = "Assran, Loizou, Ballas, Rabbat, ICML 2019"
    keeps: ClassVar[str] = "a sum and a weight at every node"
    sends: ClassVar[str] = "a share of both to every node that it reaches"
    guarantees: ClassVar[str] = (
        "the sums of both are kept, what is on the way included; messages are at most τ rounds late"
    )
    title: ClassVar[str] = "overlap gradient push"
    description: ClassVar[str] = "Nodes push shares of their models along one-way links and train on meanwhile."
    colour: ClassVar[str] = "#B07AA1"
    conserves: ClassVar[tuple[Law, ...]] = ("sum",)
    on_directed_graphs: ClassVar[bool] = True

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return MESSAGES

    def machine(self, surroundings: Surroundings) -> Machine:
        return OverlapPush(surroundings, self.delay)


class OverlapPush(Machine):
    """One node. What comes of a round that it has not finished itself waits until it has."""

    __slots__ = ("around", "came", "delay", "moved", "round", "training", "weight", "whole")

    def __init__(self, around: Surroundings, delay: int) -> None:
        self.around, self.delay, self.weight = around, delay, 1.0
        self.round = 0  # trainings that are done
        self.whole = 0  # rounds of which everything has come
        self.came: dict[int, dict[int, bytes]] = {}  # round that is not whole, or not done here -> sender -> note
        self.training = self.moved = False

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received):
            return [*self._take(event), *self._train_on()]
        if isinstance(event, Trained):
            self.training = False
            return [*self._push(), *self._train_on()]
        if isinstance(event, Started):
            start = [Combine(MODEL, {INITIAL: 1.0}), Combine(SUM, {INITIAL: 1.0})]
            return [*start, Record(MEMBER, self.around.node, MODEL), *self._train_on()]
        return []

    def _train_on(self) -> list[Effect]:
        while self.whole < self.round and len(self.came.get(self.whole, {})) == len(self._sources(self.whole)):
            self.came.pop(self.whole, None)
            self.whole += 1
        if self.training or self.whole < self.round - self.delay:
            return []
        self.training, self.moved = True, False
        return [Train(MODEL)]

    def _sources(self, round_: int) -> tuple[int, ...]:
        return self.around.meets(round_)[1]

    def _push(self) -> list[Effect]:
        """Take in what was learned, and give shares of it away."""
        statistics = {SUM: 0.5, UPDATE: 0.5 * self.weight} if self.moved else {UPDATE: self.weight}
        learn = Combine(SUM, {SUM: 1.0, UPDATE: 1.0}, statistics)
        targets = self.around.meets(self.round)[0]
        share = 1.0 / (len(targets) + 1)
        self.weight *= share
        message = Message("push", round=self.round, note=weight_note(self.weight))
        sends = [Send(to, message, SHARE) for to in targets]
        waiting = self.came.get(self.round, {})
        self.round += 1
        added = [effect for sender, note in waiting.items() for effect in self._add(self.round - 1, sender, note)]
        return [learn, Combine(SHARE, {SUM: share}), *sends, Combine(SUM, {SHARE: 1.0}), *added, *self._show()]

    def _take(self, event: Received) -> list[Effect]:
        sender, number, note = event.sender, event.message.round, event.message.note
        came = self.came.setdefault(number, {})
        if number < self.whole or sender in came or sender not in self._sources(number):
            raise ValueError(f"{sender} does not push to this node in round {number}, or has done so")
        weight_in(note)  # refuses nonsense before anything is taken in
        came[sender] = note
        return [*self._add(number, sender, note), *self._show()] if number < self.round else []

    def _add(self, round_: int, sender: int, note: bytes) -> list[Effect]:
        slot = f"push/{round_}/{sender}"
        self.weight += weight_in(note)
        self.moved = True
        return [Combine(SUM, {SUM: 1.0, slot: 1.0}), Forget(slot)]

    def _show(self) -> list[Effect]:
        """z = x/w."""
        return [Combine(MODEL, {SUM: 1.0 / self.weight}), Record(MEMBER, self.around.node, MODEL)]
