"""K-GT (Liu, Lin, Koloskova, Stich 2024): gradient tracking with K local steps between two rounds.

    y_i: K local steps from x_i with gradients g_i + c_i,    z_i = (x_i − y_i) / (K η)
    x_i ← Σ_j W_ij (x_j − η_s K η z_j),    c_i ← c_i − z_i + Σ_j W_ij z_j

All c add up to 0, always. At rest every node's corrected gradient is the mean one, so it reaches the optimum with a
constant η however unlike the data are and however many local steps there are, where Local D-SGD drifts: what SCAFFOLD
does with a server, and the same where everybody meets. With K = 1 and η_s = 1 it is gradient tracking, whose tracker z
is. Sends two models a round. All c begin with 0; in the paper also with the mean of all gradients minus the node's own.
The study's optimizer is to be plain SGD: K η is what a local training moves by. (Written from memory of the paper.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt

from walktalk.protocols.effects import UPDATE, Combine, Effect, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.meeting import HALF, MODEL, Meeting
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import BALANCED, Demand, Law

CORRECTION, DIRECTION = "correction", "direction"  # c and z


@dataclass(frozen=True)
class KGT(NeighbourRounds):
    """Local steps and gossip in rounds, with corrections to every gradient against the drift of nodes with unlike data.

    Args:
        steps: local steps K between two averagings; 0: as many as the study says.
        outer_lr: how much of what was learned a round takes, η_s.
    """

    steps: Annotated[int, Ge(0)] = 0
    outer_lr: Annotated[float, Gt(0)] = 1.0
    name: ClassVar[str] = "k_gt"
    proved: ClassVar[str] = "Liu et al. 2024, here with one local step"
    bound: ClassVar[str] = "k_gt_order"
    paper: ClassVar[str] = "Liu, Lin, Koloskova, Stich, Optim. Methods Softw. 2024"
    keeps: ClassVar[str] = "a model and a correction at every node"
    sends: ClassVar[str] = "two models to every neighbour after K local steps"
    guarantees: ClassVar[str] = (
        "corrections add up to zero: exact with a constant rate on unlike nodes, local steps or not; messages that are "
        "lost leave a rest"
    )
    title: ClassVar[str] = "K-GT"
    description: ClassVar[str] = (
        "Nodes train for some steps with corrected gradients, then gossip models and directions."
    )
    kinds: ClassVar[tuple[str, ...]] = ("model", "direction")
    colour: ClassVar[str] = "#27556C"
    demands: ClassVar[tuple[Demand, ...]] = (BALANCED,)
    on_directed_graphs: ClassVar[bool] = True
    plain_sgd_only: ClassVar[str] = "tells gradients from how far a training went, which a momentum makes longer"
    needs_own_gradients: ClassVar[str] = "corrects every gradient of a training"

    @property
    def conserves(self) -> tuple[Law, ...]:
        return ("sum",) if self.outer_lr == 1 else ()

    def rule(self, around: NetworkView) -> Rule:
        return CorrectedSteps(self)


class CorrectedSteps(Rule):
    """−K η z is what was learned."""

    __slots__ = ("corrects", "settings")

    begins_anew: ClassVar[bool] = True  # corrections add up to nothing among those that averaged

    def __init__(self, settings: KGT) -> None:
        self.settings, self.corrects = settings, False

    def work(self) -> Train:
        return Train(MODEL, steps=self.settings.steps, correction=CORRECTION if self.corrects else "")

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        moved = event.lr * event.steps
        along = -1.0 / moved if moved else 0.0  # a learning rate of zero says nothing of gradients
        return [
            Combine(DIRECTION, {UPDATE: along}),
            Combine(HALF, {MODEL: 1.0, UPDATE: self.settings.outer_lr}, {UPDATE: 1.0}),
            *meeting.send(HALF, "model"),
            *meeting.send(DIRECTION, "direction"),
        ]

    def mix(self, meeting: Meeting) -> list[Effect]:
        row = meeting.mean(DIRECTION, "direction")
        kept = {CORRECTION: 1.0} if self.corrects else {}
        self.corrects = True
        corrected = Combine(CORRECTION, {**kept, **row, DIRECTION: row[DIRECTION] - 1.0})
        return [Combine(MODEL, meeting.mean(HALF, "model")), corrected]
