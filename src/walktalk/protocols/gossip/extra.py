"""EXTRA (Shi, Ling, Wu, Yin 2015): gossip in rounds that takes back in each what the averaging did in the one before.

    x(1) = W x(0) − η g(0),    x(t+2) = (I + W) x(t+1) − ½ (I + W) x(t) − η (g(t+1) − g(t))

Added up that is x(t+1) = W x(t) − η g(t) − ½ (I − W) Σ_{s<t} x(s): at rest nodes agree and the mean of the gradients is
zero, so it comes to the optimum with a constant η, which need not fall with the size of the network, for the bytes of
D-PSGD. D² does the same in another order: it averages after the step, EXTRA before it. W must be symmetric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from walktalk.protocols.effects import UPDATE, Combine, Effect
from walktalk.protocols.events import Trained
from walktalk.protocols.gossip.d2 import with_sum_one
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.meeting import MODEL, Meeting
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import FIXED, Demand, Law

TOLD, LEARNED, MIXED = "told", "learned", "mixed"  # x with the statistics of the trained model, −ηg, Wx
DRIFT, NEXT = "drift", "next"  # −½(x + Wx) + ηg of the round before, and the next x


@dataclass(frozen=True)
class EXTRA(NeighbourRounds):
    """Gossip in rounds that is exact on unlike data, at no cost in bytes."""

    name: ClassVar[str] = "extra"
    proved: ClassVar[str] = "Alghunaim & Yuan 2022"
    bound: ClassVar[str] = "extra_order"
    paper: ClassVar[str] = "Shi, Ling, Wu, Yin, SIAM J. Optim. 2015"
    keeps: ClassVar[str] = "a model and its drift at every node"
    sends: ClassVar[str] = "a model to every neighbour in a round"
    guarantees: ClassVar[str] = (
        "exact with a constant rate on unlike nodes, for the bytes of D-PSGD; messages that are lost leave a rest"
    )
    title: ClassVar[str] = "EXTRA"
    description: ClassVar[str] = "Gossip in rounds that corrects each averaging by the one before: for unlike data."
    colour: ClassVar[str] = "#8A6FA8"
    demands: ClassVar[tuple[Demand, ...]] = (FIXED,)
    conserves: ClassVar[tuple[Law, ...]] = ("sum",)

    def rule(self, around: NetworkView) -> Rule:
        return Corrected()


class Corrected(Rule):
    """−½(x + Wx) + ηg of the last round is all that is kept."""

    __slots__ = ("drifts",)

    begins_anew: ClassVar[bool] = True  # drifts add up to nothing among those that averaged

    def __init__(self) -> None:
        self.drifts = False

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        told = Combine(TOLD, {MODEL: 1.0}, {UPDATE: 1.0})
        return [Combine(LEARNED, {UPDATE: 1.0}), told, *meeting.send(TOLD, "round")]

    def mix(self, meeting: Meeting) -> list[Effect]:
        corrected = {MODEL: 1.0, DRIFT: 1.0} if self.drifts else {}
        self.drifts = True
        return [
            Combine(MIXED, with_sum_one(TOLD, meeting.mean(TOLD, "round"))),
            Combine(NEXT, {MIXED: 1.0, LEARNED: 1.0, **corrected}, {MIXED: 1.0}),
            Combine(DRIFT, {MODEL: -0.5, MIXED: -0.5, LEARNED: -1.0}),
            Combine(MODEL, {NEXT: 1.0}),
        ]
