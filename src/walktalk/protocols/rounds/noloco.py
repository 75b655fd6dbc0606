"""NoLoCo (Kolehmainen et al. 2025): DiLoCo without a collective. Nodes train long, then average outer steps in pairs.

Every node has an outer model φ and trains θ from it for H steps; then with those that it meets in this round, W,

    δ_i ← β δ_i + η Σ_j W_ij (θ_j − φ_j) + γ (Σ_j W_ij φ_j − φ_i),    φ_i ← φ_i + δ_i,    θ_i ← φ_i

The terms in γ cancel in the mean: the mean of all φ follows momentum SGD on the mean change, whoever meets. Sends two
models a round. Take `random_matchings` for random pairs, `random_groups` for larger ones. The inner optimizer's state
stays at the node with `optimizer_state: node`; it is never averaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Lt

from walktalk.protocols.demands import BALANCED, Demand
from walktalk.protocols.effects import UPDATE, Combine, Effect, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, Surroundings
from walktalk.protocols.message import Arrival
from walktalk.protocols.rounds.meeting import MODEL, Meeting, Rule, arrivals
from walktalk.protocols.rounds.neighbour_rounds import NeighbourRounds

MESSAGES = arrivals("outer", "change")
CHANGE, MEAN, STEP = "change", "mean", "step"  # θ − φ, Σ W φ, δ


@dataclass(frozen=True)
class NoLoCo(NeighbourRounds):
    """Long local trainings, and outer momentum steps that are averaged in small groups.

    Args:
        steps: local steps H between two meetings; 0: as many as the study says.
        outer_lr: how much of the change a round takes, η.
        outer_momentum: β of the outer steps.
        gamma: how far a node goes towards the mean of those that it meets, γ.
    """

    steps: Annotated[int, Ge(0)] = 0
    outer_lr: Annotated[float, Gt(0)] = 0.7
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.5
    gamma: Annotated[float, Gt(0)] = 0.7
    name: ClassVar[str] = "noloco"
    family: ClassVar[str] = "gossip"
    paper: ClassVar[str] = "Kolehmainen et al. 2025"
    keeps: ClassVar[str] = "an outer model and its momentum at every node"
    sends: ClassVar[str] = "two models to everybody that it meets in a round"
    guarantees: ClassVar[str] = "the mean of the outer models follows momentum SGD on the mean change, whoever meets"
    title: ClassVar[str] = "NoLoCo"
    description: ClassVar[str] = "Nodes train long and average outer momentum steps with those that they meet."
    colour: ClassVar[str] = "#9C4A1A"
    demands: ClassVar[tuple[Demand, ...]] = (BALANCED,)
    on_directed_graphs: ClassVar[bool] = True
    made_for: ClassVar[str] = "random_matchings"

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return MESSAGES

    def machine(self, surroundings: Surroundings) -> Machine:
        return self.node(surroundings, OuterSteps(self))


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
