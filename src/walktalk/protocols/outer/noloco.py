"""NoLoCo (Kolehmainen et al. 2025): DiLoCo without a collective. Nodes train long, then average outer steps in pairs.

Every node has an outer model φ and trains θ from it for H steps; then with those that it meets in this round, W,

    δ_i ← β δ_i + η Σ_j W_ij (θ_j − φ_j) + γ (Σ_j W_ij φ_j − φ_i),    φ_i ← φ_i + δ_i,    θ_i ← φ_i

The terms in γ cancel in the mean: the mean of all φ follows momentum SGD on the mean change, whoever meets. Sends two
models a round. With P fragments (as Streaming DiLoCo has them: every P-th parameter is one) only fragment p = t mod P
of both is sent in round t, and only that one takes the step; the others train on, so each is exchanged after P
trainings, and a round costs a P-th of the bytes. With a codec (`compression: int4`) both go in few bits.

Take `random_matchings` for random pairs, `random_groups` for larger ones. The inner optimizer's state stays at the node
with `optimizer_state: node`; it is never averaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Lt

from walktalk.protocols.effects import UPDATE, Arrival, Combine, Effect, Forget, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, NetworkView
from walktalk.protocols.mechanisms.fragments import codec_of
from walktalk.protocols.mechanisms.meeting import MODEL, Meeting, arrivals
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import BALANCED, Demand

CHANGE, MEAN, STEP = "change", "mean", "step"  # θ − φ, Σ W φ, δ
OUTER, OWN_OUTER, OWN_CHANGE = "outer", "own_outer", "own_change"  # φ; with fragments, this round's of φ and θ − φ


@dataclass(frozen=True)
class NoLoCo(NeighbourRounds):
    """Long local trainings, and outer momentum steps that are averaged in small groups.

    Args:
        steps: local steps H between two meetings; 0: as many as the study says.
        outer_lr: how much of the change a round takes, η.
        outer_momentum: β of the outer steps.
        gamma: how far a node goes towards the mean of those that it meets, γ.
        fragments: how many there are, P; each is exchanged in every P-th round.
    """

    steps: Annotated[int, Ge(0)] = 0
    outer_lr: Annotated[float, Gt(0)] = 0.7
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.5
    gamma: Annotated[float, Gt(0)] = 0.7
    fragments: Annotated[int, Ge(1)] = 1
    name: ClassVar[str] = "noloco"
    paper: ClassVar[str] = "Kolehmainen et al. 2025"
    keeps: ClassVar[str] = "an outer model and its momentum at every node"
    sends: ClassVar[str] = "two models to everybody that it meets in a round, or a fragment of both"
    guarantees: ClassVar[str] = "the mean of the outer models follows momentum SGD on the mean change, whoever meets"
    title: ClassVar[str] = "NoLoCo"
    description: ClassVar[str] = "Nodes train long and average outer momentum steps with those that they meet."
    colour: ClassVar[str] = "#9C4A1A"
    demands: ClassVar[tuple[Demand, ...]] = (BALANCED,)
    on_directed_graphs: ClassVar[bool] = True
    made_for: ClassVar[str] = "random_matchings"

    @classmethod
    def other_forms(cls) -> tuple[NoLoCo, ...]:
        return (cls(fragments=2),)

    @property
    def why_nodes_stay(self) -> str:
        fragments = "with fragments one that joins hears only a part of the model in a round"
        return fragments if self.fragments > 1 else super().why_nodes_stay

    @property
    def messages(self) -> Mapping[str, Arrival]:
        if self.fragments == 1:
            return arrivals("outer", "change")
        each = (arrivals(*kinds_of(p), codec=codec_of(p, self.fragments)) for p in range(self.fragments))
        return {kind: arrival for one in each for kind, arrival in one.items()}

    def machine(self, network_view: NetworkView) -> Machine:
        turns = [kinds_of(p) for p in range(self.fragments)] if self.fragments > 1 else ()
        return self.node(network_view, self.rule(network_view), turns=turns)

    def rule(self, around: NetworkView) -> Rule:
        return FragmentSteps(self) if self.fragments > 1 else OuterSteps(self)


class OuterSteps(Rule):
    """`MODEL` is φ, with which every round begins."""

    __slots__ = ("moving", "settings")

    def __init__(self, settings: NoLoCo) -> None:
        self.settings, self.moving = settings, False

    def begin(self) -> list[Effect]:
        return []

    def work(self) -> Train:
        return Train(MODEL, steps=self.settings.steps)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        return [Combine(CHANGE, {UPDATE: 1.0}), *meeting.send(MODEL, "outer"), *meeting.send(CHANGE, "change")]

    def mix(self, meeting: Meeting) -> list[Effect]:
        ours = self.settings
        kept = {STEP: ours.outer_momentum} if self.moving else {}
        self.moving = True
        changes = meeting.mean(CHANGE, "change")  # whose statistics are those of the trained models
        outer = {slot: ours.outer_lr * weight for slot, weight in changes.items()}
        return [
            Combine(MEAN, meeting.mean(MODEL, "outer")),
            Combine(STEP, {**kept, **outer, MEAN: ours.gamma, MODEL: -ours.gamma}, changes),
            Combine(MODEL, {MODEL: 1.0, STEP: 1.0}, {STEP: 1.0}),
        ]


class FragmentSteps(Rule):
    """`MODEL` is θ, of which only the fragment of a round becomes φ's at its end."""

    __slots__ = ("moving", "settings")

    adopts: ClassVar[bool] = False  # only a fragment comes in a round

    def __init__(self, settings: NoLoCo) -> None:
        self.settings = settings
        self.moving: set[int] = set()  # fragments that have a momentum

    def begin(self) -> list[Effect]:
        return [Combine(OUTER, {MODEL: 1.0})]

    def work(self) -> Train:
        return Train(MODEL, steps=self.settings.steps)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        outers, changes = self._turn(meeting)
        learned = Combine(MODEL, {MODEL: 1.0, UPDATE: 1.0}, {UPDATE: 1.0})
        change = Combine(CHANGE, {MODEL: 1.0, OUTER: -1.0}, {MODEL: 1.0})  # its statistics are the trained model's
        sends = [*meeting.send(OUTER, outers, seen=OWN_OUTER), *meeting.send(CHANGE, changes, seen=OWN_CHANGE)]
        return [learned, change, *sends]

    def mix(self, meeting: Meeting) -> list[Effect]:
        ours, p = self.settings, meeting.round % self.settings.fragments
        kinds = self._turn(meeting)
        outers, changes = meeting.mean(OWN_OUTER, kinds[0]), meeting.mean(OWN_CHANGE, kinds[1])
        pull = {slot: ours.gamma * weight for slot, weight in outers.items()}
        pull[OWN_OUTER] -= ours.gamma
        along = {slot: ours.outer_lr * weight for slot, weight in changes.items()}
        step = f"{STEP}/{p}"
        kept = {step: ours.outer_momentum} if p in self.moving else {}
        self.moving.add(p)
        return [
            *(effect for kind in kinds for effect in meeting.opened(kind)),
            Combine(step, {**kept, **along, **pull}, changes),
            Combine(OUTER, {OUTER: 1.0, step: 1.0}, {OUTER: 1.0}),
            Combine(MODEL, {MODEL: 1.0, OWN_CHANGE: -1.0, step: 1.0}),  # θ_p = φ_p + (θ_p − φ_p), of before
            *(Forget(slot) for slot in (OWN_OUTER, OWN_CHANGE, CHANGE)),
        ]

    def _turn(self, meeting: Meeting) -> tuple[str, str]:
        """The kinds of this round's messages."""
        return kinds_of(meeting.round % self.settings.fragments)


def kinds_of(fragment: int) -> tuple[str, str]:
    """The messages that bring a fragment of φ, and of θ − φ."""
    return f"outer_{fragment}", f"change_{fragment}"
