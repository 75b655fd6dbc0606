"""A codec without memory: what is sent is Q(x), and the receiver works with that."""

from __future__ import annotations

from collections.abc import Mapping

from walktalk.protocols.effects import Combine, Decode, Effect, Encode, Forget, MixEveryone, Send
from walktalk.protocols.events import Event, Received
from walktalk.protocols.machine import Machine, Outside
from walktalk.protocols.message import Arrival
from walktalk.protocols.wrapped import WrappedNode


class CodedNode(WrappedNode):
    """One node of any protocol; `inner` is the node that it would be without a codec."""

    __slots__ = ("codec", "kinds")

    def __init__(self, inner: Machine, messages: Mapping[str, Arrival], codec: str) -> None:
        super().__init__(inner)
        self.codec = codec
        self.kinds = frozenset(kind for kind, arrival in messages.items() if arrival.slot)

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        effects = self.changed(self.inner.handle(event, outside))
        if isinstance(event, Received) and event.message.kind in self.kinds:
            return [Decode(event.slot, event.slot), *effects]  # codes have slots of their own, of the same names
        return effects

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
                    done.append(Encode(effect.slot, code, self.codec))
                effect = effect._replace(slot=made[effect.slot])
            else:
                made.pop(written_by(effect), None)
            done.append(effect)
        return [*done, *(Forget(code) for code in used)]


def written_by(effect: Effect) -> str:
    """The slot that an effect changes; "" for none."""
    if isinstance(effect, Combine | Decode):
        return effect.into
    return effect.slot if isinstance(effect, Forget | MixEveryone) else ""
