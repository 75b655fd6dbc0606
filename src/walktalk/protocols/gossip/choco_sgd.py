"""CHOCO-SGD (Koloskova, Stich, Jaggi 2019; Koloskova, Lin, Stich, Jaggi 2020): gossip of compressed differences.

Every node has a public copy x̂ that all its neighbours have, too; only what is missing in it is sent, compressed:

    x_i½ = x_i − η g_i,   q_i = Q(x_i½ − x̂_i),   x̂_j ← x̂_j + q_j everywhere,   x_i ← x_i½ + γ Σ_j W_ij (x̂_j − x̂_i)

The public copies are the same at both ends, so the mean of all x is moved by the gradients alone, whatever Q does.
Neighbours' copies are kept as one sum, Σ_j W_ij x̂_j. Without compression and with γ = 1 it is D-PSGD in the order
train, then mix. With several local steps, and a momentum in the study's optimizer, it does what quantized DFedAvgM is
for (Sun, Li, Wang 2023), by public copies, so that the mean of all x never depends on what a code has lost. The
running statistics of a model stay at its node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from walktalk.protocols.effects import INITIAL, UPDATE, Arrival, Combine, Effect, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, NetworkView, Protocol, row_of
from walktalk.protocols.mechanisms.meeting import HALF, MODEL, Meeting, arrivals
from walktalk.protocols.mechanisms.rounds import RoundNode, Rule
from walktalk.protocols.self_description import FIXED, Demand, Law
from walktalk.transforms.codecs import codec_named

PUBLIC, AROUND = "public", "around"  # x̂_i, and Σ_{j≠i} W_ij x̂_j
MISSING, SEEN = "missing", "seen"  # x_i½ − x̂_i, and what receivers see of it


@dataclass(frozen=True)
class ChocoSGD(Protocol):
    """Gossip in rounds that sends only compressed differences.

    Args:
        codec: what compresses them, e.g. "int8", "int4", "bf16" or "top_k(0.01)"; empty: nothing does.
        gamma: how far a node goes towards its neighbours, γ; the coarser the codec, the smaller.
        steps: local steps between two averagings; 0: as many as the study says.
    """

    codec: str = "int8"
    gamma: Annotated[float, Gt(0), Le(1)] = 0.8
    steps: Annotated[int, Ge(0)] = 0
    name: ClassVar[str] = "choco_sgd"
    also_known_as: ClassVar[tuple[str, ...]] = ("choco",)
    family: ClassVar[str] = "gossip"
    paper: ClassVar[str] = "Koloskova, Stich, Jaggi, ICML 2019; Koloskova, Lin, Stich, Jaggi, ICLR 2020"
    keeps: ClassVar[str] = "a model, its public copy and the mean of the neighbours' copies at every node"
    sends: ClassVar[str] = "a compressed difference to every neighbour in a round"
    guarantees: ClassVar[str] = "public copies agree at both ends, so the codec never moves the mean of all models"
    title: ClassVar[str] = "CHOCO-SGD"
    description: ClassVar[str] = "Gossip in rounds in which only compressed differences are sent."
    colour: ClassVar[str] = "#6B4226"
    instead: ClassVar[str] = "local_dsgd with compression"
    why_failures_end_it: ClassVar[str] = (
        "a difference that is lost leaves the public copies at the two ends of a link apart for good"
    )
    why_nodes_stay: ClassVar[str] = "public copies have to be the same at both ends of a link, from the beginning"
    demands: ClassVar[tuple[Demand, ...]] = (FIXED,)
    conserves: ClassVar[tuple[Law, ...]] = ("sum",)

    def __post_init__(self) -> None:
        if self.codec:
            codec_named(self.codec)  # says what is wrong with it

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return arrivals("difference", codec=self.codec)

    def machine(self, network_view: NetworkView) -> Machine:
        return RoundNode(self, Meeting(network_view, self.messages, {}), Differences(self, network_view))


class Differences(Rule):
    """The public copies begin with the initial model, which everybody knows."""

    __slots__ = ("gamma", "row", "steps")

    def __init__(self, settings: ChocoSGD, around: NetworkView) -> None:
        self.gamma, self.row = settings.gamma, row_of(around, 0)
        self.steps = settings.steps

    def begin(self) -> list[Effect]:
        return [Combine(PUBLIC, {INITIAL: 1.0}), Combine(AROUND, {INITIAL: sum(self.row.values())})]

    def work(self) -> Train:
        return Train(MODEL, steps=self.steps)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        half = Combine(HALF, {MODEL: 1.0, UPDATE: 1.0}, {UPDATE: 1.0})
        missing = Combine(MISSING, {HALF: 1.0, PUBLIC: -1.0})
        send = meeting.send(MISSING, "difference", seen=SEEN)
        return [half, missing, *send, Combine(PUBLIC, {PUBLIC: 1.0, SEEN: 1.0})]

    def mix(self, meeting: Meeting) -> list[Effect]:
        came = {meeting.slot("difference", peer): weight for peer, weight in self.row.items()}
        pull = self.gamma * sum(self.row.values())
        mix = Combine(MODEL, {HALF: 1.0, AROUND: self.gamma, PUBLIC: -pull}, {HALF: 1.0})
        return [*meeting.opened("difference"), Combine(AROUND, {AROUND: 1.0, **came}), mix]
