"""Local D-SGD (Koloskova et al. 2020) and DFedAvgM (Sun, Li, Wang 2023): K local steps, then one averaging.

    x_i ← Σ_j W_ij (x_j − η Σ_k g_j(x_j^k)),   k = 1 … K

With K = 1 it is D-PSGD in the order train, then mix (`sync_gossip` is the other order, Wx − ηg, in which a node trains
while its model is on the way). With a momentum in the study's optimizer it is DFedAvgM: fresh at every round with
`optimizer_state: visit`, as there, or kept at the node. Where W = 11ᵀ/n it is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.effects import UPDATE, Combine, Effect, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.meeting import HALF, MODEL, Meeting
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import BALANCED, Demand, Law


@dataclass(frozen=True)
class LocalDSGD(NeighbourRounds):
    """Every node trains for some steps, then averages with its neighbours, round by round.

    Args:
        steps: local steps K between two averagings; 0: as many as the study says.
    """

    steps: Annotated[int, Ge(0)] = 0
    name: ClassVar[str] = "local_dsgd"
    proved: ClassVar[str] = "Koloskova et al. 2020, with one local step"
    bound: ClassVar[str] = "d_psgd_order"
    paper: ClassVar[str] = "Koloskova et al., ICML 2020; Sun, Li, Wang, TPAMI 2023 (DFedAvgM)"
    keeps: ClassVar[str] = "a model at every node"
    sends: ClassVar[str] = "a model to every neighbour after K local steps"
    guarantees: ClassVar[str] = (
        "the mean of all models moves by the mean update alone; K steps on unlike data drift apart"
    )
    title: ClassVar[str] = "local SGD in rounds"
    description: ClassVar[str] = "Every node trains for a few steps, then averages what came out with its neighbours."
    colour: ClassVar[str] = "#5B7C99"
    demands: ClassVar[tuple[Demand, ...]] = (BALANCED,)
    conserves: ClassVar[tuple[Law, ...]] = ("sum",)
    on_directed_graphs: ClassVar[bool] = True

    def rule(self, around: NetworkView) -> Rule:
        return TrainThenMix(self.steps)


class TrainThenMix(Rule):
    """Trains first and mixes then: W(x + update)."""

    __slots__ = ("steps",)

    def __init__(self, steps: int = 0) -> None:
        self.steps = steps

    def work(self) -> Train:
        return Train(MODEL, steps=self.steps)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        return [Combine(HALF, {MODEL: 1.0, UPDATE: 1.0}, {UPDATE: 1.0}), *meeting.send(HALF, "round")]

    def mix(self, meeting: Meeting) -> list[Effect]:
        return [Combine(MODEL, meeting.mean(HALF, "round"))]
