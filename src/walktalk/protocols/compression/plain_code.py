"""A codec without memory: what is sent is Q(x), and the receiver works with that."""

from __future__ import annotations

from collections.abc import Mapping

from walktalk.protocols.compression.parts import behind
from walktalk.protocols.effects import Combine, Decode, Effect, Encode, Forget, MixEveryone, Send
from walktalk.protocols.events import Event, Received
from walktalk.protocols.machine import Machine, Outside
from walktalk.protocols.message import Arrival
from walktalk.protocols.wrapped import WrappedNode


class CodedNode(WrappedNode):
    """One node of any protocol; `inner` is the node that it would be without a codec."""

    __slots__ = ("codec", "models", "parts")

    def __init__(self, inner: Machine, messages: Mapping[str, Arrival], codec: str) -> None:
        super().__init__(inner)
        self.codec = codec
        self.models = frozenset(kind for kind, arrival in messages.items() if arrival.slot and not arrival.codec)
        self.parts = {kind: arrival for kind, arrival in messages.items() if arrival.slot and arrival.codec}

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        effects = self.changed(self.inner.handle(event, outside))
        if isinstance(event, Received) and event.message.kind in self.models:
            return [Decode(event.slot, event.slot), *effects]  # codes have slots of their own, of the same names
        return effects  # a part is decoded by the node inside, as it always is

    def changed(self, effects: list[Effect]) -> list[Effect]:
        """With a code in place of every model that is sent; the same one for all that get the same model."""
        if not any(isinstance(effect, Send) and effect.slot for effect in effects):
            return effects
        done: list[Effect] = []
        made: dict[str, str] = {}  # slots whose code is there, and where
        used: dict[str, None] = {}
        for effect in effects:
            if isinstance(effect, Send) and effect.slot:
                if effect.slot not in made:
                    made[effect.slot] = code = f"code/{effect.slot}"
                    used[code] = None
                    done += self._encoded(effect, code)
                effect = effect._replace(slot=made[effect.slot])
            else:
                made.pop(written_by(effect), None)
            done.append(effect)
        return [*done, *(Forget(code) for code in used)]

    def _encoded(self, effect: Send, code: str) -> list[Effect]:
        """The code of what is sent; of a part that is a code already, what that stands for is encoded."""
        part = self.parts.get(effect.message.kind)
        if part is None:
            return [Encode(effect.slot, code, self.codec)]
        model = f"part/{effect.slot}"
        return [Decode(effect.slot, model), Encode(model, code, behind(part, self.codec)), Forget(model)]


def written_by(effect: Effect) -> str:
    """The slot that an effect changes; "" for none."""
    if isinstance(effect, Combine | Decode | Encode):
        return effect.into
    return effect.slot if isinstance(effect, Forget | MixEveryone) else ""
