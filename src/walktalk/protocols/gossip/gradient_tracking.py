"""Gradient tracking (NEXT, Di Lorenzo and Scutari 2016; DIGing, Nedić et al. 2017; DSGT, Pu and Nedić 2021).

    x_i ← Σ_j W_ij (x_j − η y_j),    y_i ← Σ_j W_ij y_j + g_i(new x_i) − g_i(old x_i),    y_i = g_i at first

The mean of all y is the mean of all gradients, always; so every node comes to move along everybody's gradient, and to
the optimum with a constant η, where D-PSGD stays beside it. Sends two models a round. A gradient is the mean over as
many batches as a training of the study has steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from walktalk.protocols.effects import GRADIENT, Combine, Differentiate, Effect
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.meeting import HALF, MODEL, Meeting
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import BALANCED, Demand

TRACKER, LAST = "tracker", "last"  # y, and what was tracked in the round before: the gradient, or a momentum


@dataclass(frozen=True)
class GradientTracking(NeighbourRounds):
    """Gossip in rounds in which every node tracks the mean of all gradients and follows it."""

    name: ClassVar[str] = "gradient_tracking"
    also_known_as: ClassVar[tuple[str, ...]] = ("gt", "dsgt", "diging")
    proved: ClassVar[str] = "Koloskova et al. 2021"
    bound: ClassVar[str] = "gradient_tracking_order"
    paper: ClassVar[str] = "Di Lorenzo and Scutari 2016; Nedić et al. 2017; Pu and Nedić 2021"
    keeps: ClassVar[str] = "a model, a tracker and the last gradient at every node"
    sends: ClassVar[str] = "two models to every neighbour in a round"
    guarantees: ClassVar[str] = (
        "the mean of all trackers is the mean gradient: exact with a constant rate on unlike nodes; messages that are "
        "lost leave a rest"
    )
    title: ClassVar[str] = "gradient tracking"
    description: ClassVar[str] = "Nodes gossip models and gradients, so that each follows the mean of all gradients."
    kinds: ClassVar[tuple[str, ...]] = ("model", "tracker")
    colour: ClassVar[str] = "#3B6E4F"
    needs_own_gradients: ClassVar[str] = "asks for gradients, not for trained models"
    demands: ClassVar[tuple[Demand, ...]] = (BALANCED,)
    on_directed_graphs: ClassVar[bool] = True

    def rule(self, around: NetworkView) -> Rule:
        return Tracking()


class Tracking(Rule):
    """After the averaging the tracker is Wy, until the gradient at the new model is there.

    Args:
        beta: what is tracked is the momentum u ← β u + g; 0: the gradient.
        mix_first: whether models are averaged before the step along y, Wx − ηy, and not after it.
    """

    __slots__ = ("beta", "lr", "mix_first", "tracks")

    begins_anew: ClassVar[bool] = True  # trackers add up to the gradients of those that mix them

    def __init__(self, beta: float = 0.0, mix_first: bool = False) -> None:
        self.beta, self.mix_first, self.tracks = beta, mix_first, False
        self.lr = 0.0  # η of this round

    def work(self) -> Differentiate:
        return Differentiate(MODEL)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        before = {TRACKER: 1.0, LAST: self.beta - 1.0} if self.tracks else {}  # u − (u of before) = (β − 1) u + g
        kept = {LAST: self.beta} if self.tracks and self.beta else {}
        self.tracks, self.lr = True, event.lr
        step = {} if self.mix_first else {TRACKER: -event.lr}
        return [
            Combine(TRACKER, {**before, GRADIENT: 1.0}),
            Combine(LAST, {**kept, GRADIENT: 1.0}),
            Combine(HALF, {MODEL: 1.0, **step}, {GRADIENT: 1.0}),
            *meeting.send(HALF, "model"),
            *meeting.send(TRACKER, "tracker"),
        ]

    def mix(self, meeting: Meeting) -> list[Effect]:
        row = meeting.mean(HALF, "model")
        mixed = Combine(MODEL, {**row, TRACKER: -self.lr}, row) if self.mix_first else Combine(MODEL, row)
        return [mixed, Combine(TRACKER, meeting.mean(TRACKER, "tracker"))]
