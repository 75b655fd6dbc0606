"""SwarmSGD (Nadiradze, Sabour, Davies, Li, Alistarh 2021): some local steps, then one average along a random link.

Blocking: two neighbours that both have done their H steps, a fixed number or a geometric one, average:

    x_i, x_j ← (x_i + x_j) / 2

Non-blocking: whoever has done its steps averages with a random neighbour's model as that was before its unfinished
steps, and neither stops; those are added when they are done. This is the exchange of `async_gossip`, with overlap.

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

from annotated_types import Ge, Gt

from walktalk.codecs import codec_named
from walktalk.errors import SpecError
from walktalk.protocols.async_gossip.habit import Habit
from walktalk.protocols.async_gossip.plain import ExchangingGossip
from walktalk.protocols.async_gossip.resilient import MESSAGES, ResilientGossip
from walktalk.protocols.asynchronous.swarm_sgd.blocking import BLOCKING_MESSAGES, BlockingPairs
from walktalk.protocols.asynchronous.swarm_sgd.quantized import QuantizedPairs, quantized_messages
from walktalk.protocols.machine import Machine, Protocol, Surroundings
from walktalk.protocols.message import Arrival
from walktalk.protocols.self_description import InLabel, Law


@dataclass(frozen=True)
class SwarmSGD(Protocol):
    """Every node trains for some steps, then averages with one random neighbour.

    Args:
        steps: local steps H between two averagings; 0: as many as the study says.
        random_steps: whether the number of steps is geometric, with that mean.
        blocking: whether the two wait until both have done their steps; if not, nobody stops.
        codec: what compresses the differences that are sent, e.g. "int8"; empty: models are sent as they are.
        resilient: whether it survives failures; if left out, where there may be any. Not with blocking, nor a codec.
        patience: seconds to wait for the first answers before asking again; after that it is known how long they take.
    """

    steps: Annotated[int, Ge(0)] = 0
    random_steps: bool = False
    blocking: bool = False
    codec: str = ""
    resilient: bool | None = None
    patience: Annotated[float, Gt(0), InLabel("")] = 10.0
    name: ClassVar[str] = "swarm_sgd"
    family: ClassVar[str] = "gossip"
    paper: ClassVar[str] = "Nadiradze et al., NeurIPS 2021"
    keeps: ClassVar[str] = "a model at every node"
    sends: ClassVar[str] = (
        "a model along one random link and one back, after H local steps; a difference in few bits if quantized"
    )
    guarantees: ClassVar[str] = "a meeting never changes the sum of the two"
    description: ClassVar[str] = "Every node trains for a few steps, then averages with one random neighbour."
    colour: ClassVar[str] = "#D98880"
    conserves: ClassVar[tuple[Law, ...]] = ("sum",)

    def __post_init__(self) -> None:
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

    @property
    def instead(self) -> str:
        return "plain swarm_sgd, with compression if wanted"

    @property
    def survives_failures(self) -> bool:
        return not self.blocking and not self.codec

    @classmethod
    def usual(cls) -> tuple[SwarmSGD, ...]:
        return cls(), cls(blocking=True), cls(codec="int8")

    @property
    def messages(self) -> Mapping[str, Arrival]:
        if self.blocking:
            return BLOCKING_MESSAGES
        if self.codec:
            return quantized_messages(self.codec)
        return MESSAGES if self.resilient else {kind: MESSAGES[kind] for kind in ("offer", "answer")}

    def machine(self, surroundings: Surroundings) -> Machine:
        habit = Habit(overlap=True, steps=self.steps, random_steps=self.random_steps)
        if self.blocking:
            return BlockingPairs(surroundings, habit)
        if self.codec:
            return QuantizedPairs(surroundings, habit, self.codec)
        if self.resilient:
            return ResilientGossip(surroundings, habit, self.patience)
        return ExchangingGossip(surroundings, habit)
