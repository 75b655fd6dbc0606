"""D² (Tang, Lian, Yan, Zhang, Liu 2018), which is exact diffusion (Yuan, Ying, Zhao, Sayed 2019).

    x_i(t+1) = Σ_j W_ij (2 x_j(t) − x_j(t−1) − η g_j(t) + η g_j(t−1)),    x(1) = W (x(0) − η g(0))
    with (I + W)/2 in place of W, unless lazy is false

What the averaging did to a node's model is added once more the next time, so at rest nodes agree and the mean of the
gradients is zero: the optimum with a constant η, for the bytes of D-PSGD. W must be symmetric and its eigenvalues above
−1/3; (I + W)/2 is both on every graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from walktalk.chains import metropolis_hastings, spectrum
from walktalk.protocols.effects import UPDATE, Combine, Effect
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.meeting import HALF, MODEL, Meeting
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import FIXED, Demand, Law

NOT_BELOW_A_THIRD = Demand(
    "weights whose eigenvalues are not below −1/3",
    lambda graph: spectrum(metropolis_hastings(graph)).smallest > -1 / 3 - 1e-6,
    "network: weights on {graph} have eigenvalues below −1/3, with which {label} diverges; set lazy to true",
)
GRID = 2.0**-24  # its multiples up to 1 are numbers of 32 bits, and so is what they leave of 1
LEARNED, MIXED, DRIFT = "learned", "mixed", "drift"  # −ηg, the next x, x(t) − x(t−1) + ηg(t−1)


@dataclass(frozen=True)
class D2(NeighbourRounds):
    """Gossip in rounds that undoes the bias of unlike data, at no cost in bytes.

    Args:
        lazy: mix by (I + W)/2, which any graph allows, as exact diffusion does; if not, by W itself, as D² does.
    """

    lazy: bool = True
    name: ClassVar[str] = "d2"
    also_known_as: ClassVar[tuple[str, ...]] = ("exact_diffusion",)
    proved: ClassVar[str] = "Alghunaim & Yuan 2022, for (I + W)/2"
    bound: ClassVar[str] = "d2_order"
    paper: ClassVar[str] = "Tang et al., ICML 2018 (D²); Yuan et al. 2019 (exact diffusion)"
    keeps: ClassVar[str] = "a model and its drift at every node"
    sends: ClassVar[str] = "a model to every neighbour in a round"
    guarantees: ClassVar[str] = (
        "exact with a constant rate on unlike nodes, for the bytes of D-PSGD; messages that are lost leave a rest"
    )
    title: ClassVar[str] = "D²"
    description: ClassVar[str] = "Gossip in rounds that takes back what averaging did to a model: for unlike data."
    colour: ClassVar[str] = "#A05195"
    conserves: ClassVar[tuple[Law, ...]] = ("sum",)

    @property
    def demands(self) -> tuple[Demand, ...]:
        return (FIXED,) if self.lazy else (FIXED, NOT_BELOW_A_THIRD)

    def rule(self, around: NetworkView) -> Rule:
        return ExactDiffusion(self.lazy)


class ExactDiffusion(Rule):
    """x(t) − x(t−1) + ηg(t−1), what the averaging did last time, is all that is kept."""

    __slots__ = ("drifts", "lazy")

    begins_anew: ClassVar[bool] = True  # drifts add up to nothing among those that averaged

    def __init__(self, lazy: bool) -> None:
        self.lazy, self.drifts = lazy, False

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        drift = {DRIFT: 1.0} if self.drifts else {}
        half = Combine(HALF, {MODEL: 1.0, UPDATE: 1.0, **drift}, {UPDATE: 1.0})
        return [Combine(LEARNED, {UPDATE: 1.0}), half, *meeting.send(HALF, "round")]

    def mix(self, meeting: Meeting) -> list[Effect]:
        self.drifts = True
        return [
            Combine(MIXED, with_sum_one(HALF, meeting.mean(HALF, "round", self.lazy))),
            Combine(DRIFT, {MIXED: 1.0, MODEL: -1.0, LEARNED: -1.0}),
            Combine(MODEL, {MIXED: 1.0}),
        ]


def with_sum_one(own: str, row: Mapping[str, float]) -> dict[str, float]:
    """A row of W that sums to one also as numbers of 32 bits, in which models are added up everywhere.

    The mean of the models goes by 2 x(t) − x(t−1), which has no place of its own: with a sum of 1 + ε it grows as
    cosh(√ε t) wherever the loss does not hold it. Three times the number of 32 bits next to 1/3 is 1 + 3e-8, which
    makes 14 times the model after 20,000 rounds. Weights are rounded alike at both ends of a link, so columns sum to
    one, too.
    """
    others = {slot: round(weight / GRID) * GRID for slot, weight in row.items() if slot != own}
    return {own: 1.0 - sum(others.values()), **others}
