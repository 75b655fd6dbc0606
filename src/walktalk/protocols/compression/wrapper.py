"""Any protocol with a codec between it and the network: the protocol itself does not know.

Every model that its machines send is encoded, and decoded where it arrives (`plain_code`): the receiver works with
Q(x). Unbiased and fine codecs (8 bits, bf16) need no more. What leaves out most of a model needs a memory: with error
feedback (`feedback`) the two ends of a link keep a reference h, the sender sends Q(x − h), and both go on with
h + Q(x − h), so that what was left out is sent later (EF21: Richtárik, Sokolov, Fatkhullin 2021; CHOCO: Koloskova et
al. 2019).

A protocol that cuts models into parts, to send them different ways or at different times, has the parts encoded, with a
reference for each (`parts`). Running statistics of models go as they are, and so do optimizer states that travel with a
walk. The sum of all models, which plain mixing keeps, is kept on average at best: what one side takes away is not what
the other adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from walktalk.codecs import CODECS, CodedPart, Part, codec_named
from walktalk.errors import SpecError
from walktalk.protocols.compression import feedback as with_memory
from walktalk.protocols.compression.feedback import FeedbackNode
from walktalk.protocols.compression.parts import behind, is_part
from walktalk.protocols.compression.plain_code import CodedNode
from walktalk.protocols.machine import Machine, Protocol, Surroundings
from walktalk.protocols.message import Arrival
from walktalk.protocols.wrapped import Wrapped

UNCODED = ("none", "fp32")  # 32 bits, as models are: nothing is done


def compressed(protocol: Protocol, codec: str, error_feedback: bool | None = None) -> Protocol:
    """The same protocol, everything that it sends compressed.

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
            return with_memory.arrivals(self.inner.messages, self.codec)
        return {
            kind: arrival._replace(codec=behind(arrival, self.codec)) if arrival.slot else arrival
            for kind, arrival in self.inner.messages.items()
        }

    @property
    def nodes_come_and_go(self) -> bool:  # type: ignore[override]
        return self.inner.nodes_come_and_go and not self.feedback  # which has a memory for every neighbour of the start

    def machine(self, surroundings: Surroundings) -> Machine:
        inner = self.inner.machine(surroundings)
        if self.feedback:
            # Who survives failures without a form of its own for them may miss messages, also those that a later one
            # has made void (`Arrival.latest`).
            asks = self.inner.settings.get("resilient", self.inner.survives_failures)
            return FeedbackNode(inner, self.inner.messages, self.codec, surroundings.neighbours if asks else ())
        return CodedNode(inner, self.inner.messages, self.codec)

    def hardened(self) -> Compressed:
        return Compressed(self.inner.hardened(), self.codec, self.feedback)

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
