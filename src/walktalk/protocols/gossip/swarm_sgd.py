"""SwarmSGD (Nadiradze, Sabour, Davies, Li, Alistarh 2021): some local steps, then one average along a random link.

Blocking: two neighbours that both have done their H steps, a fixed number or a geometric one, average:

    x_i, x_j ← (x_i + x_j) / 2

Non-blocking: whoever has done its steps averages with a random neighbour's model as that was before its unfinished
steps, and neither stops; those are added when they are done. This is the exchange of
`mechanisms.pairs`, with overlap.

Quantized: what is sent is the difference to what the other knows already, in few bits. The paper codes a model by a
lattice against the receiver's own model (Davies et al. 2021); here the point of reference is what this neighbour saw
last of this node, which both ends keep: its error, too, shrinks with what has changed, and not with the model's size.
Both sides use what was decoded, so the sum of the two is kept exactly.

With H = 1 and blocking it is random pairwise gossip. (The rules of blocking and non-blocking are from memory of the
paper; its abstract says as much: random pairings, local steps, non-blocking, quantized against reference points.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.core.errors import SpecError
from walktalk.protocols.effects import Arrival
from walktalk.protocols.machine import Machine, NetworkView
from walktalk.protocols.mechanisms.blocking_pairs import BLOCKING_MESSAGES, BlockingPairs, PatientPairs
from walktalk.protocols.mechanisms.pair_rule import InPairs, PairRule
from walktalk.protocols.mechanisms.pairs import Turns
from walktalk.protocols.mechanisms.quantized_pairs import DecodedPairs, DecodedTurns, QuantizedPairs, quantized_messages
from walktalk.protocols.wrappers.error_feedback import arrivals_with_feedback
from walktalk.transforms.codecs import codec_named


@dataclass(frozen=True)
class SwarmSGD(InPairs):
    """Every node trains for some steps, then averages with one random neighbour.

    Args:
        steps: local steps H between two averagings; 0: as many as the study says.
        random_steps: whether the number of steps is geometric, with that mean.
        blocking: whether the two wait until both have done their steps; if not, nobody stops.
        codec: what compresses the differences that are sent, e.g. "int8"; empty: models are sent as they are.
    """

    steps: Annotated[int, Ge(0)] = 0
    random_steps: bool = False
    blocking: bool = False
    codec: str = ""
    name: ClassVar[str] = "swarm_sgd"
    paper: ClassVar[str] = "Nadiradze et al., NeurIPS 2021"
    keeps: ClassVar[str] = "a model at every node"
    sends: ClassVar[str] = (
        "a model along one random link and one back, after H local steps; a difference in few bits if quantized"
    )
    guarantees: ClassVar[str] = "a meeting never changes the sum of the two"
    description: ClassVar[str] = "Every node trains for a few steps, then averages with one random neighbour."
    colour: ClassVar[str] = "#D98880"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.random_steps and not self.steps:
            raise SpecError("steps: 0 is not possible with random_steps; 1 or more is needed, the mean of them")
        if self.codec:
            codec_named(self.codec)  # says what is wrong with it
        if self.blocking and self.codec:
            raise SpecError(f"codec: {self.codec!r} is not possible with blocking; set blocking to false")

    @property
    def title(self) -> str:
        how = [*(["blocking"] if self.blocking else []), *([self.codec] if self.codec else [])]
        return f"SwarmSGD ({', '.join(how)})" if how else "SwarmSGD"

    @classmethod
    def usual(cls) -> tuple[SwarmSGD, ...]:
        return cls(), cls(blocking=True), cls(codec="int8")

    @property
    def messages(self) -> Mapping[str, Arrival]:
        if self.blocking and not self.resilient:
            return BLOCKING_MESSAGES
        if self.codec:
            exact = super().messages
            return arrivals_with_feedback(exact, self.codec) if self.resilient else quantized_messages(self.codec)
        return super().messages

    def machine(self, network_view: NetworkView) -> Machine:
        rule = PairRule(self.steps, self.random_steps)
        if self.blocking:
            return PatientPairs(network_view, rule, self.waits) if self.resilient else BlockingPairs(network_view, rule)
        if self.codec and self.resilient:
            inner = DecodedTurns(network_view, rule, self.waits, overlap=True)
            return DecodedPairs(inner, super().messages, self.codec, network_view.neighbours)
        if self.codec:
            return QuantizedPairs(network_view, rule, self.codec)
        return Turns(network_view, rule, self.waits, overlap=True)
