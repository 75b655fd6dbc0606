"""Exchanges that send differences in few bits, against what each neighbour saw last.

**Plain**, two neighbours keep the same two points of reference, at first the initial model: what the one has seen of
the other, and the other way round. A message brings the encoded difference of a model to that point and moves it, at
both ends in the same order: messages of a pair are numbered, and one that comes too early waits. The two average what
was decoded. The running statistics of a model stay at its node.

**Resilient** it is the exchange of `pairs` through the references of `wrappers.error_feedback`, which begin anew with a
whole model where they may differ. What each side keeps of an exchange is then what the other has decoded, so both mix
the same two models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from walktalk.protocols.effects import INITIAL, Arrival, Combine, Decode, Effect, Encode, Forget, Message, Send
from walktalk.protocols.events import Received
from walktalk.protocols.machine import Context, NetworkView
from walktalk.protocols.mechanisms.pair_rule import ANSWER, MODEL, OFFER, PairRule
from walktalk.protocols.mechanisms.pairs import OFFERED, PLAIN, Turns, given_slot
from walktalk.protocols.wrappers.error_feedback import FeedbackNode

MISSING, PACKED, STEP = "missing", "packed", "step"  # a difference, its code, what the other sees of it


def quantized_messages(codec: str) -> Mapping[str, Arrival]:
    """How offers and answers arrive."""
    return {kind: Arrival(f"{kind}/{{sender}}/{{round}}", codec=codec) for kind in (OFFER, ANSWER)}


class QuantizedPairs(Turns):
    """A node that sends what neighbours have not seen of it, and never waits: seen of `peer` is in `seen/{peer}`, seen
    by it in `shown/{peer}`."""

    __slots__ = ("codec", "early", "heard", "said")

    def __init__(self, around: NetworkView, rule: PairRule, codec: str) -> None:
        super().__init__(around, rule, patience=None, overlap=True)
        self.codec = codec
        self.said = dict.fromkeys(around.neighbours, 0)  # messages to each
        self.heard = dict.fromkeys(around.neighbours, 0)  # messages of each that were handled
        self.early: dict[tuple[int, int], Received] = {}  # by sender and number: came before one that was sent before

    def _begin(self, context: Context) -> list[Effect]:
        slots = [f"{what}/{peer}" for peer in self.around.neighbours for what in ("shown", "seen")]
        return [*(Combine(slot, {INITIAL: 1.0}) for slot in slots), *super()._begin(context)]

    def _plain_offer(self, partners: Iterable[int]) -> list[Effect]:
        offers: list[Effect] = []
        for peer in partners:
            self.exchanges.begun[peer] = PLAIN
            offers += [*self._show(peer, OFFER), Combine(OFFERED, {f"shown/{peer}": 1.0})]
        return offers

    def _show(self, peer: int, kind: str) -> list[Effect]:
        """Send what a neighbour has not seen yet."""
        shown, message = f"shown/{peer}", Message(kind, round=self.said[peer])
        self.said[peer] += 1
        return [
            Combine(MISSING, {MODEL: 1.0, shown: -1.0}),
            Encode(MISSING, PACKED, self.codec),
            Decode(PACKED, STEP),
            Combine(shown, {shown: 1.0, STEP: 1.0}),
            Send(peer, message, PACKED),
        ]

    def _received(self, event: Received, context: Context) -> list[Effect]:
        """Handle all that is there of a neighbour, in the order in which it was sent."""
        peer, number = event.sender, event.message.round
        if number < self.heard[peer] or (peer, number) in self.early:
            raise ValueError(f"message {number} of {peer} has come already")
        self.early[peer, number] = event
        effects: list[Effect] = []
        while following := self.early.pop((peer, self.heard[peer]), None):
            effects += self._see(following)
            self.heard[peer] += 1
        return effects

    def _see(self, event: Received) -> list[Effect]:
        peer, seen = event.sender, f"seen/{event.sender}"
        offered = event.message.kind == OFFER
        mine = f"shown/{peer}" if offered else OFFERED
        if not offered:
            self.exchanges.begun.pop(peer, None)
        self.moved = True
        see: list[Effect] = [Decode(event.slot, STEP), Combine(seen, {seen: 1.0, STEP: 1.0}), Forget(event.slot)]
        mix = Combine(MODEL, {MODEL: 1.0, seen: 0.5, mine: -0.5}, {MODEL: 1.0})
        return [*see, *(self._show(peer, ANSWER) if offered else []), mix, self.record]


class DecodedPairs(FeedbackNode):
    """Sends differences to references that both ends of a link keep, also where some of them are lost."""

    __slots__ = ()

    def _send(self, effect: Send) -> list[Effect]:
        """What the exchange keeps of the model is what the other sees of it."""
        *work, sent = super()._send(effect)
        seen = Combine(effect.slot, {f"sent/{effect.to}/{effect.message.kind}": 1.0})
        return [*work, *([seen] if work else []), sent]


class DecodedTurns(Turns):
    """Both sides mix what each has seen of the other; `DecodedPairs` puts that into what is kept."""

    __slots__ = ()

    def _meet(self, new: str, old: str, peer: int) -> list[Effect]:
        return super()._meet(new, given_slot(peer) if old == MODEL else old, peer)
