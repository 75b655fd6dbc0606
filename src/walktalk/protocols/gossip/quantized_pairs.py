"""SwarmSGD that sends differences in few bits, against what each neighbour saw last.

Two neighbours keep the same two points of reference: what the one has seen of the other, and the other way round. A
message brings the encoded difference of a model to that point and moves it, at both ends in the same order: messages of
a pair are numbered, and one that comes too early waits. An exchange is that of `mechanisms.pairs`, decoded.
The running statistics of a model stay at its node.

Where nodes and messages are lost, or nodes come and go, it is the exchange of `mechanisms.pairs` through the references
of `wrappers.error_feedback`, which begin anew with a whole model where they may differ. What each side keeps of an
exchange is then what the other has decoded, so both mix the same two models (`DecodedPairs`).
"""

from __future__ import annotations

from collections.abc import Mapping

from walktalk.protocols.effects import (
    INITIAL,
    MEMBER,
    Arrival,
    Combine,
    Decode,
    Effect,
    Encode,
    Forget,
    Message,
    Record,
    Send,
    apply_update,
)
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Context, Machine, NetworkView
from walktalk.protocols.mechanisms.pair_rule import MODEL, PairRule, random_one
from walktalk.protocols.mechanisms.pairs import Turns, given_slot
from walktalk.protocols.wrappers.error_feedback import FeedbackNode

MISSING, PACKED, STEP = "missing", "packed", "step"  # a difference, its code, what the other sees of it
OFFERED = "offered"  # what the other saw of this node when it was offered


def quantized_messages(codec: str) -> Mapping[str, Arrival]:
    """How offers and answers arrive."""
    return {kind: Arrival(f"{kind}/{{sender}}/{{round}}", codec=codec) for kind in ("offer", "answer")}


def shown(peer: int) -> str:
    """The slot of what a neighbour has seen of this node."""
    return f"shown/{peer}"


def seen(peer: int) -> str:
    """The slot of what this node has seen of a neighbour."""
    return f"seen/{peer}"


class QuantizedPairs(Machine):
    """A node that sends what neighbours have not seen of it, in few bits, and never waits."""

    __slots__ = ("around", "awaited", "codec", "early", "heard", "moved", "rule", "said")

    def __init__(self, around: NetworkView, rule: PairRule, codec: str) -> None:
        self.around, self.rule, self.codec = around, rule, codec
        self.awaited = False  # whether an answer is still to come
        self.said = dict.fromkeys(around.neighbours, 0)  # messages to each
        self.heard = dict.fromkeys(around.neighbours, 0)  # messages of each that are taken in
        self.early: dict[tuple[int, int], Received] = {}  # by sender and number: came before one that was sent before
        self.moved = False  # whether the model was mixed since the training under way began

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Received):
            return self._received(event)
        if isinstance(event, Trained):
            learn = apply_update(MODEL, self.moved)
            self.moved = False
            return [learn, self._record(), *self._offer(context), self.rule.train(context)]
        if isinstance(event, Started):
            known = [Combine(slot(peer), {INITIAL: 1.0}) for peer in self.around.neighbours for slot in (shown, seen)]
            return [Combine(MODEL, {INITIAL: 1.0}), *known, self._record(), self.rule.train(context)]
        return []

    def _record(self) -> Effect:
        return Record(MEMBER, self.around.node, MODEL)

    def _offer(self, context: Context) -> list[Effect]:
        drawn = random_one(self.around.neighbours, context)
        if self.awaited or drawn is None:
            return []
        self.awaited = True
        return [*self._show(drawn, "offer"), Combine(OFFERED, {shown(drawn): 1.0})]

    def _show(self, peer: int, kind: str) -> list[Effect]:
        """Send what a neighbour has not seen yet."""
        message = Message(kind, round=self.said[peer])
        self.said[peer] += 1
        return [
            Combine(MISSING, {MODEL: 1.0, shown(peer): -1.0}),
            Encode(MISSING, PACKED, self.codec),
            Decode(PACKED, STEP),
            Combine(shown(peer), {shown(peer): 1.0, STEP: 1.0}),
            Send(peer, message, PACKED),
        ]

    def _received(self, event: Received) -> list[Effect]:
        """Take in all that is there of a neighbour, in the order in which it was sent."""
        peer, number = event.sender, event.message.round
        if number < self.heard.get(peer, number + 1) or (peer, number) in self.early:
            raise ValueError(f"message {number} of {peer} has come already, or it is no neighbour")
        self.early[peer, number] = event
        effects: list[Effect] = []
        while (peer, self.heard[peer]) in self.early:
            effects += self._take(self.early.pop((peer, self.heard[peer])))
            self.heard[peer] += 1
        return effects

    def _take(self, event: Received) -> list[Effect]:
        peer, kind = event.sender, event.message.kind
        see: list[Effect] = [
            Decode(event.slot, STEP),
            Combine(seen(peer), {seen(peer): 1.0, STEP: 1.0}),
            Forget(event.slot),
        ]
        reply = self._show(peer, "answer") if kind == "offer" else []
        mine = shown(peer) if kind == "offer" else OFFERED
        self.awaited, self.moved = self.awaited and kind == "offer", True
        mix = Combine(MODEL, {MODEL: 1.0, seen(peer): 0.5, mine: -0.5}, {MODEL: 1.0})
        return [*see, *reply, mix, self._record()]


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
