"""SwarmSGD in which a pair averages only when both have done their steps, and neither goes on before.

One asks, the other says yes with its model, the first answers with its own, and both have the mean. Whoever trains, or
is in a meeting, lets those who ask wait. Whoever has asked somebody itself lets those with a smaller number wait, and
puts the others off, also those who have waited already: it will ask them. So nobody waits in a circle, in which at
least one would wait for a smaller number; and who is put off is asked by one with a smaller number, which is never put
off.

That takes for granted that everybody answers. Where nodes and messages are lost, or nodes come and go, it is the
exchange of `mechanisms.pairs` (`PatientPairs`): an offer waits until the one that is asked has done its steps.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from walktalk.protocols.effects import (
    INITIAL,
    MEMBER,
    Arrival,
    Combine,
    Effect,
    Forget,
    Message,
    Record,
    Send,
    apply_update,
)
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Context, Machine, NetworkView
from walktalk.protocols.mechanisms.pair_rule import MODEL, PairRule, random_one
from walktalk.protocols.mechanisms.pairs import PairNode, Turns

BLOCKING_MESSAGES = {
    "ask": Arrival(),
    "later": Arrival(),
    "yes": Arrival("yes/{sender}", once=True),
    "model": Arrival("model/{sender}", once=True),
}
State = Literal["trains", "asks", "is free", "meets"]


class Waiting(NamedTuple):
    """One that this node is to meet."""

    peer: int
    asked: bool  # whether it has asked and waits; if not, it was put off


class BlockingPairs(Machine):
    """A node that averages only with a partner that has done its steps, too, and waits for it."""

    __slots__ = ("around", "partner", "rule", "state", "waiting")

    def __init__(self, around: NetworkView, rule: PairRule) -> None:
        self.around, self.rule = around, rule
        self.state: State = "trains"
        self.partner = -1  # whom it asks, or meets
        self.waiting: list[Waiting] = []

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Received):
            return self._received(event, context)
        if isinstance(event, Trained):
            return [apply_update(MODEL), self._record(), *self._meet(context)]
        if isinstance(event, Started):
            return [Combine(MODEL, {INITIAL: 1.0}), self._record(), self.rule.train(context)]
        return []

    def _record(self) -> Effect:
        return Record(MEMBER, self.around.node, MODEL)

    def _meet(self, context: Context) -> list[Effect]:
        """The steps are done: on with those who wait, or with a random neighbour."""
        self.state = "is free"
        if self.waiting:
            return self._next()
        drawn = random_one(self.around.neighbours, context)
        return self._ask(drawn) if drawn is not None else self._train_on(context)

    def _next(self) -> list[Effect]:
        first = self.waiting.pop(0)
        return self._accept(first.peer) if first.asked else self._ask(first.peer)

    def _ask(self, peer: int) -> list[Effect]:
        """Ask a partner; from now on only those with a smaller number may wait for this node."""
        self.state, self.partner = "asks", peer
        put_off = [one.peer for one in self.waiting if one.asked and one.peer > self.around.node]
        self.waiting = [one._replace(asked=False) if one.peer in put_off else one for one in self.waiting]
        return [Send(peer, Message("ask")), *(Send(other, Message("later")) for other in put_off)]

    def _accept(self, peer: int) -> list[Effect]:
        self.state, self.partner = "meets", peer
        return [Send(peer, Message("yes"), MODEL)]

    def _train_on(self, context: Context) -> list[Effect]:
        self.state, self.partner = "trains", -1
        return [self.rule.train(context)]

    def _received(self, event: Received, context: Context) -> list[Effect]:
        peer, kind = event.sender, event.message.kind
        if peer not in self.around.neighbours:
            raise ValueError(f"{peer} is no neighbour")
        if kind == "ask":
            return self._asked(peer)
        awaited: State = "meets" if kind == "model" else "asks"
        if (self.state, self.partner) != (awaited, peer):
            raise ValueError(f"{peer} says {kind!r}, but this node {self.state}")
        if kind == "later":
            self.state = "is free"
            return self._next() if self.waiting else []
        reply = [Send(peer, Message("model"), MODEL)] if kind == "yes" else []
        mean = Combine(MODEL, {MODEL: 0.5, event.slot: 0.5})
        return [*reply, mean, Forget(event.slot), self._record(), *self._train_on(context)]

    def _asked(self, peer: int) -> list[Effect]:
        self.waiting = [one for one in self.waiting if one.peer != peer]  # who was put off and asks again, waits for us
        if self.state == "is free":
            return self._accept(peer)
        if self.state == "asks" and peer == self.partner:  # both ask each other: the smaller number accepts
            return self._accept(peer) if self.around.node < peer else []
        put_off = self.state == "asks" and peer > self.around.node
        self.waiting.append(Waiting(peer, asked=not put_off))
        return [Send(peer, Message("later"))] if put_off else []


class PatientPairs(Turns):
    """A node that answers only once its steps are done, and then all that have asked; else it asks a neighbour itself.

    Whoever waits for an answer has done its steps, and answers others meanwhile: so only trainings are waited for, and
    nobody waits in a circle. Who waits for too long trains on, and takes the answer when it comes.
    """

    __slots__ = ("asked",)

    def __init__(self, around: NetworkView, rule: PairRule, patience: float | None) -> None:
        super().__init__(around, rule, patience)
        self.asked: dict[int, Received] = {}  # by neighbour: an offer that waits for the end of the training

    def trained(self, context: Context) -> list[Effect]:
        asked, self.asked = self.asked, {}
        learned = [*self.rule.learn(self.moved), self.record]
        answers = [effect for event in asked.values() for effect in PairNode._answer(self, event, context)]
        asks = [] if asked or self.exchanges.awaited else self.offer(self.partner(context), context.now)
        return [*learned, *answers, *asks, *self.go_on(context)]

    def _answer(self, event: Received, context: Context) -> list[Effect]:
        """What was answered is answered again at once; one that is new waits in its slot."""
        about = event.message.term, event.message.round
        if not self.training or self.exchanges.given.get(event.sender) == about:
            return super()._answer(event, context)
        self.asked[event.sender] = event
        return []

    def _change(self, around: NetworkView, context: Context) -> list[Effect]:
        gone = [peer for peer in self.asked if peer not in around.neighbours]
        forgotten = [Forget(self.asked.pop(peer).slot) for peer in gone]
        return [*forgotten, *super()._change(around, context)]
