"""SlowMo (Wang, Tantia, Ballas, Rabbat 2020): a slow momentum over every τ rounds of gossip.

    x_i ← Σ_j W_ij (x_j − η Σ_k g_j(x_j^k))                    τ times, from x_i⁰
    u_i ← β u_i + (x_i⁰ − x_i) / η,    x_i ← x_i⁰ − α η u_i    then, and x_i⁰ ← x_i

With β = 0 and α = 1 it is the method that it is made of, Local D-SGD. The paper averages all models exactly before it
takes the slow step, and also leaves that out, with little loss; here it is left out, since no graph but a complete one
can do it in a round. There it is the paper's first form, and with τ = 1 momentum SGD on the mean change of K local
steps (BMUF, Chen and Huo 2016; FedAvgM). With τ = 1 and α = 1 it is DecentLaM on any graph (Yuan et al., ICCV 2021: a
momentum of x − W(x − ηg), so that it does not make the rest of unlike data larger). Slow steps come to rest where the
method does by itself: on unlike data beside the optimum. (Written from memory of the papers.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Lt

from walktalk.protocols.effects import UPDATE, Combine, Effect, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.meeting import HALF, MODEL, Meeting
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import BALANCED, Demand, Law

OUTER, MOMENTUM, MIXED = "outer", "momentum", "mixed"  # x⁰, u, and x after the averaging


@dataclass(frozen=True)
class SlowMo(NeighbourRounds):
    """Gossip in rounds in which every node takes a momentum step along what a stretch of rounds has brought.

    Args:
        rounds: of gossip between two slow steps, τ.
        outer_lr: how much of the momentum a slow step takes, α.
        outer_momentum: the slow momentum, β; 0, and 1 for `outer_lr`: plain gossip in rounds.
        steps: local steps K between two averagings; 0: as many as the study says.
    """

    rounds: Annotated[int, Ge(1)] = 12
    outer_lr: Annotated[float, Gt(0)] = 1.0
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.6
    steps: Annotated[int, Ge(0)] = 0
    name: ClassVar[str] = "slowmo"
    known_forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"decentlam": {"rounds": 1}}
    proved: ClassVar[str] = "ours, with one local step"
    bound: ClassVar[str] = "slowmo_order"
    paper: ClassVar[str] = "Wang, Tantia, Ballas, Rabbat, ICLR 2020; with rounds: 1 Yuan et al., ICCV 2021 (DecentLaM)"
    keeps: ClassVar[str] = "a model, that of the last slow step and a slow momentum at every node"
    sends: ClassVar[str] = "a model to every neighbour after K local steps"
    guarantees: ClassVar[str] = (
        "the mean of all models follows momentum SGD on the mean change of τ rounds, and comes to where gossip does"
    )
    title: ClassVar[str] = "SlowMo"
    description: ClassVar[str] = "Gossip in rounds, with a slow momentum step along what every few rounds have brought."
    colour: ClassVar[str] = "#6A7F3F"
    demands: ClassVar[tuple[Demand, ...]] = (BALANCED,)
    on_directed_graphs: ClassVar[bool] = True

    @property
    def conserves(self) -> tuple[Law, ...]:
        return ("sum",) if self.outer_momentum == 0 and self.outer_lr == 1 else ()

    def rule(self, around: NetworkView) -> Rule:
        return SlowSteps(self)


class SlowSteps(Rule):
    """Slow steps are taken in the same rounds everywhere, also by a node that comes later."""

    __slots__ = ("lr", "moving", "settings")

    def __init__(self, settings: SlowMo) -> None:
        self.settings, self.moving = settings, False
        self.lr = 0.0  # η of this round

    def begin(self) -> list[Effect]:
        return [Combine(OUTER, {MODEL: 1.0})]

    def work(self) -> Train:
        return Train(MODEL, steps=self.settings.steps)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        self.lr = event.lr
        return [Combine(HALF, {MODEL: 1.0, UPDATE: 1.0}, {UPDATE: 1.0}), *meeting.send(HALF, "round")]

    def mix(self, meeting: Meeting) -> list[Effect]:
        mixed = Combine(MIXED, meeting.mean(HALF, "round"))
        if (meeting.round + 1) % self.settings.rounds:
            return [mixed, Combine(MODEL, {MIXED: 1.0})]
        if not self.lr:  # what was moved by no learning rate says nothing of gradients
            return [mixed, Combine(MODEL, {MIXED: 1.0}), Combine(OUTER, {MODEL: 1.0})]
        kept = {MOMENTUM: self.settings.outer_momentum} if self.moving else {}
        self.moving = True
        step = self.settings.outer_lr * self.lr
        return [
            mixed,
            Combine(MOMENTUM, {**kept, OUTER: 1.0 / self.lr, MIXED: -1.0 / self.lr}),
            Combine(MODEL, {OUTER: 1.0, MOMENTUM: -step}, {MIXED: 1.0}),
            Combine(OUTER, {MODEL: 1.0}),
        ]
