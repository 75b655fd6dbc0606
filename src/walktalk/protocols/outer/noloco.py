"""NoLoCo (Kolehmainen et al. 2025): DiLoCo without a collective. Nodes train long, then average outer steps in pairs.

Every node has an outer model φ and trains θ from it for H steps; then with those that it meets in this round, W,

    δ_i ← β δ_i + η Σ_j W_ij (θ_j − φ_j) + γ (Σ_j W_ij φ_j − φ_i),    φ_i ← φ_i + δ_i,    θ_i ← φ_i

The terms in γ cancel in the mean, which follows momentum SGD on the mean change, whoever meets. With P fragments (every
P-th parameter is one) only fragment t mod P of both models is sent in round t, and only that one takes the step.
Take `random_matchings` for random pairs, `random_groups` for larger ones. Inner optimizers' states are never averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Lt

from walktalk.protocols.effects import UPDATE, Combine, Effect, Forget, Train, apply_update
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.meeting import MODEL, Meeting
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import BALANCED, Demand

CHANGE, MEAN, STEP = "change", "mean", "step"  # θ − φ, Σ W φ, δ
OUTER, OWN_OUTER, OWN_CHANGE = "outer", "own_outer", "own_change"  # φ; with fragments, this round's of φ and θ − φ


@dataclass(frozen=True)
class NoLoCo(NeighbourRounds):
    """Nodes train long and average outer momentum steps with those that they meet.

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
    kinds: ClassVar[tuple[str, ...]] = ("outer", "change")
    colour: ClassVar[str] = "#9C4A1A"
    demands: ClassVar[tuple[Demand, ...]] = (BALANCED,)
    on_directed_graphs: ClassVar[bool] = True
    made_for: ClassVar[str] = "random_matchings"

    @classmethod
    def other_forms(cls) -> tuple[NoLoCo, ...]:
        return (cls(fragments=2),)

    def rule(self, around: NetworkView) -> Rule:
        return FragmentSteps(self) if self.fragments > 1 else OuterSteps(self)


class OuterSteps(Rule):
    """`MODEL` is φ, with which every round begins."""

    __slots__ = ("moving", "settings")

    def __init__(self, settings: NoLoCo) -> None:
        self.settings = settings
        self.moving: set[str] = set()  # steps that have a momentum

    def work(self) -> Train:
        return Train(MODEL, steps=self.settings.steps)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        return [Combine(CHANGE, {UPDATE: 1.0}), *meeting.send(MODEL, "outer"), *meeting.send(CHANGE, "change")]

    def mix(self, meeting: Meeting) -> list[Effect]:
        pull = {MEAN: self.settings.gamma, MODEL: -self.settings.gamma}
        step = self.step(STEP, meeting.mean(CHANGE, "change"), pull)
        return [Combine(MEAN, meeting.mean(MODEL, "outer")), step, Combine(MODEL, {MODEL: 1.0, STEP: 1.0}, {STEP: 1.0})]

    def step(self, into: str, changes: dict[str, float], pull: dict[str, float]) -> Effect:
        """δ, whose running statistics are those of the trained models."""
        weights = {into: self.settings.outer_momentum} if into in self.moving else {}
        self.moving.add(into)
        weights |= {slot: self.settings.outer_lr * weight for slot, weight in changes.items()}
        return Combine(into, weights | pull, changes)


class FragmentSteps(OuterSteps):
    """`MODEL` is θ, of which only the fragment of a round becomes φ's at its end."""

    __slots__ = ()

    def begin(self) -> list[Effect]:
        return [Combine(OUTER, {MODEL: 1.0})]

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        change = Combine(CHANGE, {MODEL: 1.0, OUTER: -1.0}, {MODEL: 1.0})
        sends = [*meeting.send(OUTER, "outer", seen=OWN_OUTER), *meeting.send(CHANGE, "change", seen=OWN_CHANGE)]
        return [apply_update(MODEL), change, *sends]

    def mix(self, meeting: Meeting) -> list[Effect]:
        gamma, step = self.settings.gamma, f"{STEP}/{meeting.round % self.settings.fragments}"
        pull = {slot: gamma * weight for slot, weight in meeting.mean(OWN_OUTER, "outer").items()}
        pull[OWN_OUTER] -= gamma
        return [
            *meeting.opened("outer", "change"),
            self.step(step, meeting.mean(OWN_CHANGE, "change"), pull),
            Combine(OUTER, {OUTER: 1.0, step: 1.0}, {OUTER: 1.0}),
            Combine(MODEL, {MODEL: 1.0, OWN_CHANGE: -1.0, step: 1.0}),  # θ_p = φ_p + (θ_p − φ_p), of before
            *(Forget(slot) for slot in (OWN_OUTER, OWN_CHANGE, CHANGE)),
        ]
