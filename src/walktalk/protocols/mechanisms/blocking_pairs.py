"""Exchanges in which the two wait for each other: they average only when both have trained, and neither goes on before.

**Plain**, one asks, the other says yes with its model, the first answers with its own, and both have the mean. Whoever
trains, or is in a meeting, lets those who ask wait. Whoever has asked somebody itself lets those with a smaller number
wait, and puts the others off, also those who have waited already: it will ask them. So nobody waits in a circle, in
which at least one would wait for a smaller number; and who is put off is asked by one with a smaller number, which is
never put off. That takes for granted that everybody answers.

**Resilient** it is the exchange of `pairs`, in which an offer waits until the one that is asked has trained. Whoever
waits for an answer has trained, and answers others meanwhile: so only trainings are waited for, and nobody waits in a
circle. Who waits for too long trains on, and takes the answer when it comes.
"""

from __future__ import annotations

from walktalk.protocols.effects import Arrival, Effect, Forget, Message, Send
from walktalk.protocols.events import Received
from walktalk.protocols.machine import Context, NetworkView
from walktalk.protocols.mechanisms.pair_rule import MODEL, PairRule
from walktalk.protocols.mechanisms.pairs import PairNode, Turns

ASK, LATER, YES, MINE = "ask", "later", "yes", "model"  # kinds of messages
BLOCKING_MESSAGES = {
    **{kind: Arrival() for kind in (ASK, LATER)},
    **{kind: Arrival(f"{kind}/{{sender}}", once=True) for kind in (YES, MINE)},
}
NOBODY = -1


class BlockingPairs(Turns):
    """A node that averages only with a partner that has trained, too, and waits for it."""

    __slots__ = ("asks", "meets", "waiting")

    def __init__(self, around: NetworkView, rule: PairRule) -> None:
        super().__init__(around, rule, patience=None)
        self.asks = self.meets = NOBODY  # whom it has asked, or is to hear the model of
        self.waiting: dict[int, bool] = {}  # whom it is to meet next: whether one has asked and waits, or was put off

    def trained(self, context: Context) -> list[Effect]:
        learned = [*self.rule.learn(self.moved), self.record]
        partner = self.partner(context) if not self.waiting else []
        on = self._next() if self.waiting else self._ask(partner[0]) if partner else self.go_on(context)
        return [*learned, *on]

    def _next(self) -> list[Effect]:
        peer, asked = next(iter(self.waiting.items()))
        del self.waiting[peer]
        return self._accept(peer) if asked else self._ask(peer)

    def _ask(self, peer: int) -> list[Effect]:
        """Ask a partner; from now on only those with a smaller number may wait for this node."""
        self.asks = peer
        put_off = [one for one, asked in self.waiting.items() if asked and one > self.around.node]
        self.waiting.update(dict.fromkeys(put_off, False))
        return [Send(peer, Message(ASK)), *(Send(other, Message(LATER)) for other in put_off)]

    def _accept(self, peer: int) -> list[Effect]:
        self.asks, self.meets = NOBODY, peer
        return [Send(peer, Message(YES), MODEL)]

    def _received(self, event: Received, context: Context) -> list[Effect]:
        peer, kind = event.sender, event.message.kind
        if kind == ASK:
            return self._asked(peer)
        if peer != (self.meets if kind == MINE else self.asks):
            raise ValueError(f"{peer} says {kind!r}, which this node does not wait for")
        self.asks = self.meets = NOBODY
        if kind == LATER:
            return self._next() if self.waiting else []
        reply = [Send(peer, Message(MINE), MODEL)] if kind == YES else []
        return [*reply, *self._meet(event.slot, MODEL, peer), Forget(event.slot), self.record, *self.go_on(context)]

    def _asked(self, peer: int) -> list[Effect]:
        self.waiting.pop(peer, None)  # who was put off and asks again, waits for this node
        asks = self.asks != NOBODY
        if not (asks or self.training or self.meets != NOBODY):
            return self._accept(peer)
        if peer == self.asks:  # both ask each other: the smaller number accepts
            return self._accept(peer) if self.around.node < peer else []
        put_off = asks and peer > self.around.node
        self.waiting[peer] = not put_off
        return [Send(peer, Message(LATER))] if put_off else []


class PatientPairs(Turns):
    """A node that answers only once it has trained, and then all that have asked; else it asks a neighbour itself."""

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
