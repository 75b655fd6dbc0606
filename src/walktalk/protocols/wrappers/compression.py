"""Any protocol with a codec between it and the network: the protocol itself does not know.

Every model that its machines send is encoded, and decoded where it arrives (`CodedNode`): the receiver works with
Q(x). Unbiased and fine codecs (8 bits, bf16) need no more. What leaves out most of a model needs a memory: with error
feedback (`error_feedback`) the two ends of a link keep a reference h, the sender sends Q(x − h), and both go on with
h + Q(x − h), so that what was left out is sent later (EF21: Richtárik, Sokolov, Fatkhullin 2021; CHOCO: Koloskova et
al. 2019).

A protocol that cuts models into parts, to send them different ways or at different times, has the parts encoded, with a
reference for each. Running statistics of models go as they are, and so do optimizer states that travel with a
walk. The sum of all models, which plain mixing keeps, is kept on average at best: what one side takes away is not what
the other adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from walktalk.core.errors import SpecError
from walktalk.protocols.effects import Arrival, Combine, Decode, Effect, Encode, Forget, MixEveryone, Send
from walktalk.protocols.events import Event, Received
from walktalk.protocols.machine import Context, Machine, NetworkView, Protocol
from walktalk.protocols.wrappers.error_feedback import FeedbackNode, arrivals_with_feedback, behind, is_part
from walktalk.protocols.wrappers.wrapped import Wrapped, WrappedNode
from walktalk.transforms.codecs import CODECS, CodedPart, Part, codec_named


class CodedNode(WrappedNode):
    """Sends Q(x) in place of every model x; `inner` is the node that it would be without a codec."""

    __slots__ = ("codec", "models", "parts")

    def __init__(self, inner: Machine, messages: Mapping[str, Arrival], codec: str) -> None:
        super().__init__(inner)
        self.codec = codec
        self.models = frozenset(kind for kind, arrival in messages.items() if arrival.slot and not arrival.codec)
        self.parts = {kind: arrival for kind, arrival in messages.items() if arrival.slot and arrival.codec}

    def handle(self, event: Event, context: Context) -> list[Effect]:
        effects = self.changed(self.inner.handle(event, context))
        if isinstance(event, Received) and event.message.kind in self.models:
            return [Decode(event.slot, event.slot), *effects]  # codes have slots of their own, of the same names
        return effects  # a part is decoded by the node inside, as it always is

    def changed(self, effects: list[Effect]) -> list[Effect]:
        """Put a code in place of every model that is sent, one for all receivers of the same model."""
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


UNCODED = ("none", "fp32")  # 32 bits, as models are: nothing is done


def compressed(protocol: Protocol, codec: str, error_feedback: bool | None = None) -> Protocol:
    """Put a codec between a protocol and the network: everything that it sends is compressed.

    Args:
        protocol: any that sends models, whole or in parts, and has no codec of its own that makes them smaller.
        codec: "bf16", "int8", "int4", "top_k(0.01)" or another codec's name with its settings; "none" or "fp32" for
            the protocol as it is.
        error_feedback: whether both ends of a link keep what was sent last, and only the difference to it is encoded;
            if left out, where the codec needs it, as top_k does.
    """
    if codec in UNCODED:
        if error_feedback:
            raise SpecError(f"error_feedback: compression {codec} leaves nothing out to feed back; take int8, or false")
        return protocol
    found = codec_named(codec, "compression", offered)
    if isinstance(found, (Part, CodedPart)):
        raise SpecError(f"compression: {codec} would leave out the same numbers in every message; take top_k(0.5)")
    chosen = found.wants_feedback if error_feedback is None else error_feedback
    _check(protocol)
    return Compressed(protocol, codec, chosen)


def offered() -> list[str]:
    """What `compression` may be, by name: the codec `part` is for protocols that send all parts."""
    return [*(name for name, kind in CODECS.items() if not issubclass(kind, Part)), UNCODED[0]]


def _check(protocol: Protocol) -> None:
    if isinstance(protocol, Compressed):
        raise SpecError(f"compression: {protocol.label} is compressed already")
    models = [arrival for arrival in protocol.messages.values() if arrival.slot]
    if not models:
        raise SpecError(f"compression: {protocol.label} sends no models; leave compression out")
    own = next((arrival.codec for arrival in models if arrival.codec and not is_part(arrival.codec)), "")
    if own:
        raise SpecError(
            f"compression: {protocol.label} has a codec of its own, {own}; leave compression out, or that codec empty"
        )


@dataclass(frozen=True)
class Compressed(Wrapped):
    """A protocol whose messages are encoded. `compressed` makes one, and checks that it can be.

    Args:
        inner: the protocol.
        codec: the codec's name with its settings.
        feedback: whether the ends of a link remember what was sent.
    """

    codec: str = "int8"
    feedback: bool = False
    name: ClassVar[str] = "compressed"

    @property
    def messages(self) -> Mapping[str, Arrival]:
        if self.feedback:
            return arrivals_with_feedback(self.inner.messages, self.codec)
        return {
            kind: arrival._replace(codec=behind(arrival, self.codec)) if arrival.slot else arrival
            for kind, arrival in self.inner.messages.items()
        }

    def machine(self, network_view: NetworkView) -> Machine:
        inner = self.inner.machine(network_view)
        if self.feedback:
            # Who survives failures without a form of its own for them may miss messages, also those that a later one
            # has made void (`Arrival.latest`).
            asks = self.inner.settings.get("resilient", self.inner.survives_failures)
            return FeedbackNode(inner, self.inner.messages, self.codec, network_view.neighbours if asks else ())
        return CodedNode(inner, self.inner.messages, self.codec)

    def resilient_form(self) -> Compressed:
        return Compressed(self.inner.resilient_form(), self.codec, self.feedback)

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.inner.settings, "compression": self.codec, "error_feedback": self.feedback}

    @property
    def _unusual(self) -> str:
        """A word on error feedback where it is not as the codec has it by itself."""
        return "" if self.feedback == codec_named(self.codec).wants_feedback else "feedback"

    @property
    def label(self) -> str:
        marks = [self.inner.label, self.codec.replace("(", "").replace(")", "")]
        if self._unusual:
            marks.append("feedback" if self.feedback else "no-feedback")
        return "-".join(marks)

    @property
    def title(self) -> str:
        more = (" with feedback" if self.feedback else " without feedback") if self._unusual else ""
        return f"{self.inner.title}, {self.codec}{more}"

    @property
    def description(self) -> str:
        return f"{self.inner.description.rstrip('.')}; what is sent is encoded by {self.codec}."

    @property
    def keeps(self) -> str:
        more = ", and for every neighbour what was sent and heard last" if self.feedback else ""
        return f"{self.inner.keeps}{more}"

    @property
    def sends(self) -> str:
        return f"{self.inner.sends}, encoded by {self.codec}"

    @property
    def guarantees(self) -> str:
        return f"{self.inner.guarantees}, as far as {self.codec} lets it"
