"""Gradient tracking (NEXT, Di Lorenzo and Scutari 2016; DIGing, Nedić et al. 2017; DSGT, Pu and Nedić 2021).

    x_i ← Σ_j W_ij (x_j − η y_j),    y_i ← Σ_j W_ij y_j + g_i(new x_i) − g_i(old x_i),    y_i = g_i at first

The mean of all y is the mean of all gradients, always; so every node comes to move along everybody's gradient, and to
the optimum with a constant η, where D-PSGD stays beside it. Sends two models a round. A gradient is the mean over as
many batches as a training of the study has steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from walktalk.protocols.demands import BALANCED, Demand
from walktalk.protocols.effects import GRADIENT, Combine, Differentiate, Effect
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, Surroundings
from walktalk.protocols.message import Arrival
from walktalk.protocols.rounds.meeting import HALF, MODEL, Meeting, Rule, arrivals
from walktalk.protocols.rounds.neighbour_rounds import NeighbourRounds

MESSAGES = arrivals("model", "tracker")
TRACKER, LAST = "tracker", "last"  # y, and the gradient of the round before


@dataclass(frozen=True)
class GradientTracking(NeighbourRounds):
    """Gossip in rounds in which every node tracks the mean of all gradients and follows it."""

    name: ClassVar[str] = "gradient_tracking"
    family: ClassVar[str] = "gossip"
    paper: ClassVar[str] = "Di Lorenzo and Scutari 2016; Nedić et al. 2017; Pu and Nedić 2021"
    keeps: ClassVar[str] = "a model, a tracker and the last gradient at every node"
    sends: ClassVar[str] = "two models to every neighbour in a round"
    guarantees: ClassVar[str] = (
        "the mean of all trackers is the mean gradient: exact with a constant rate on unlike nodes; messages that are "
        "lost leave a rest"
    )
    title: ClassVar[str] = "gradient tracking"
    description: ClassVar[str] = "Nodes gossip models and gradients, so that each follows the mean of all gradients."
    colour: ClassVar[str] = "#3B6E4F"
    demands: ClassVar[tuple[Demand, ...]] = (BALANCED,)
    on_directed_graphs: ClassVar[bool] = True

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return MESSAGES

    def machine(self, surroundings: Surroundings) -> Machine:
        return self.node(surroundings, Tracking())


class Tracking(Rule):
    """After the averaging the tracker is Wy, until the gradient at the new model is there."""

    __slots__ = ("tracks",)

    def __init__(self) -> None:
        self.tracks = False

    def begin(self) -> list[Effect]:
        return []

    def work(self) -> Differentiate:
        return Differentiate(MODEL)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        before = {TRACKER: 1.0, LAST: -1.0} if self.tracks else {}
        self.tracks = True
        return [
            Combine(TRACKER, {**before, GRADIENT: 1.0}),
            Combine(LAST, {GRADIENT: 1.0}),
            Combine(HALF, {MODEL: 1.0, TRACKER: -event.lr}, {GRADIENT: 1.0}),
            *meeting.send(HALF, "model"),
            *meeting.send(TRACKER, "tracker"),
        ]

    def mix(self, meeting: Meeting) -> list[Effect]:
        return [Combine(MODEL, meeting.mean(HALF, "model")), Combine(TRACKER, meeting.mean(TRACKER, "tracker"))]
