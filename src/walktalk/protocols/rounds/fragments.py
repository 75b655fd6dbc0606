"""What Streaming DiLoCo does with fragments of models, whether or not anything fails (`streaming_diloco` has the rule).

Fragment p of P has every P-th parameter, from the p-th on, and zeros around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from walktalk.protocols.effects import AGGREGATE, INITIAL, MEMBER, Combine, Decode, Effect, Encode, Forget, Record, Send
from walktalk.protocols.message import Message
from walktalk.protocols.server import CHANGE, MODEL

PACKED, OWN, MEAN, WHOLE = "packed", "own", "mean", "whole"  # a code, θ_p, Δ̄, φ


def outer_slot(fragment: int) -> str:
    """Where φ_p is."""
    return f"outer/{fragment}"


def momentum_slot(fragment: int) -> str:
    """Where m_p is."""
    return f"momentum/{fragment}"


def codec_of(fragment: int, fragments: int) -> str:
    """What cuts a fragment out."""
    return f"part({fragment}, {fragments})"


@dataclass
class Fragments:
    """One node's.

    Args:
        count: how many there are, P.
        alpha: how much of its own a node keeps, α.
        outer_lr: the server's learning rate, η.
        outer_momentum: the server's momentum, β.
    """

    count: int
    alpha: float
    outer_lr: float
    outer_momentum: float

    def __post_init__(self) -> None:
        self.moving: set[int] = set()  # at the server: fragments that have a momentum

    def of(self, training: int) -> int:
        """The fragment that is exchanged after a training."""
        return training % self.count

    def begin(self, node: int) -> list[Effect]:
        """Everybody has the initial model, and all fragments of it."""
        start: list[Effect] = [Combine(MODEL, {INITIAL: 1.0}), Record(MEMBER, node, MODEL)]
        return [*start, *(effect for p in range(self.count) for effect in self.cut(INITIAL, p, outer_slot(p)))]

    def cut(self, slot: str, fragment: int, into: str) -> list[Effect]:
        """A fragment alone."""
        return [self._encode(slot, fragment), Decode(PACKED, into), Forget(PACKED)]

    def mix(self, fragment: int, node: int, share: float) -> list[Effect]:
        """So much of the server's fragment, and the rest of this node's own."""
        mixed = Combine(MODEL, {MODEL: 1.0, outer_slot(fragment): share, OWN: -share})
        return [*self.cut(MODEL, fragment, OWN), mixed, Record(MEMBER, node, MODEL)]

    def change(self, fragment: int) -> Combine:
        """What this node has changed of it; its statistics are the trained model's."""
        return Combine(CHANGE, {MODEL: 1.0, outer_slot(fragment): -1.0}, {MODEL: 1.0})

    def send_up(self, training: int, server: int, life: int = 0) -> list[Effect]:
        """That change goes to the server, of which this is a life."""
        p = self.of(training)
        send = Send(server, Message(f"up_{p}", round=training, term=life), PACKED)
        return [self.change(p), self._encode(CHANGE, p), send, Forget(PACKED)]

    def take_down(self, training: int, slot: str) -> list[Effect]:
        """The server's fragment is here, in code."""
        new = f"new/{training}"
        into = Combine(outer_slot(self.of(training)), {new: 1.0})
        return [Decode(slot, new), Forget(slot), into, Forget(new)]

    def step(self, training: int, changes: Sequence[str], others: Sequence[int], life: int = 0) -> list[Effect]:
        """At the server: an outer step along the mean of these changes, which are over then; all others are told."""
        p, eta, beta = self.of(training), self.outer_lr, self.outer_momentum
        momentum, outer = momentum_slot(p), outer_slot(p)
        kept = {momentum: beta} if p in self.moving else {}
        self.moving.add(p)
        step: list[Effect] = [
            Combine(MEAN, dict.fromkeys(changes, 1.0 / len(changes))),
            Combine(momentum, {**kept, MEAN: 1.0}),
            Combine(outer, {outer: 1.0, MEAN: eta, momentum: eta * beta}, {MEAN: 1.0}),
            self._encode(outer, p),
        ]
        sends = [Send(peer, Message(f"down_{p}", round=training, term=life), PACKED) for peer in others]
        return [*step, *sends, Forget(PACKED), *(Forget(one) for one in changes), *self.put_out()]

    def put_out(self) -> list[Effect]:
        """All fragments together are the model that the algorithm puts out."""
        return [Combine(WHOLE, {outer_slot(p): 1.0 for p in range(self.count)}), Record(AGGREGATE, 0, WHOLE)]

    def _encode(self, slot: str, fragment: int) -> Encode:
        return Encode(slot, PACKED, codec_of(fragment, self.count))
