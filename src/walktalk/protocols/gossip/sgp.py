"""SGP, stochastic gradient push (Assran, Loizou, Ballas, Rabbat 2019): averaging where links go one way only.

Every node keeps a sum x and a weight w, which starts at 1, and trains at z = x/w. In every round it sends equal shares
of x and w to those that it can reach, keeps one itself, and adds up what comes:

    x_i ← Σ_j p_ij (x_j − η g_j(z_j)),    w_i ← Σ_j p_ij w_j,    z_i = x_i / w_i,    with columns of P that sum to 1

Σx and Σw are conserved, what is on the way included, so z comes to the mean although rows of P do not sum to one. Where
they do, w stays 1, and it is D-PSGD in the order train, then mix. Of several exchanges to a training each is a round.

A share that is lost takes its weight along, so z_i is a mean of others' z all the same. But what is lost again and
again would leave less of both, and gradients would count for more: so the receiver makes up for it with its own model,
with the weight that this sender gave it last (at first: its own share).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.effects import UPDATE, Combine, Effect
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.meeting import MODEL, Meeting
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import Law

SUM, SHARE = "sum", "share"  # x, and the part of it that goes to each; z is the model


@dataclass(frozen=True)
class SGP(NeighbourRounds):
    """Nodes push shares of their models along links that may go one way only.

    Args:
        exchanges: how often nodes push between two trainings, each time along the links of the next round.
    """

    exchanges: Annotated[int, Ge(1)] = 1
    name: ClassVar[str] = "sgp"
    also_known_as: ClassVar[tuple[str, ...]] = ("push_sum", "stochastic_gradient_push")
    paper: ClassVar[str] = "Assran, Loizou, Ballas, Rabbat, ICML 2019"
    keeps: ClassVar[str] = "a sum and a weight at every node"
    sends: ClassVar[str] = "a share of both to every node that it reaches in a round"
    guarantees: ClassVar[str] = "the sums of both are kept, so all come to the mean on one-way links, too"
    title: ClassVar[str] = "stochastic gradient push"
    kinds: ClassVar[tuple[str, ...]] = ("push",)
    colour: ClassVar[str] = "#7A5195"
    conserves: ClassVar[tuple[Law, ...]] = ("sum",)
    on_directed_graphs: ClassVar[bool] = True

    def rule(self, around: NetworkView) -> Rule:
        return Push(self.exchanges)


class Push(Rule):
    """Weights travel in the messages' notes; running statistics weigh as much as the model that was trained."""

    __slots__ = ("exchanges", "given", "left", "weight")

    begins_anew: ClassVar[bool] = True  # with the weight 1 everywhere: what is on its way to one that leaves is lost

    def __init__(self, exchanges: int = 1) -> None:
        self.exchanges, self.left = exchanges, 0  # left: how many follow before the next training
        self.weight = 1.0
        self.given: dict[int, float] = {}  # sender -> the weight that it gave last

    def begin(self) -> list[Effect]:
        return [Combine(SUM, {MODEL: 1.0})]

    def check(self, kind: str, note: bytes) -> float:
        return weight_in(note)

    def adopt(self, kind: str, slot: str, note: float) -> list[Effect]:
        return [Combine(MODEL, {slot: 1.0 / note})]

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        self.left = self.exchanges - 1
        return [Combine(SUM, {SUM: 1.0, UPDATE: 1.0}, {UPDATE: self.weight}), *self._push(meeting)]

    def push_on(self, meeting: Meeting) -> list[Effect]:
        if not self.left:
            return []
        self.left -= 1
        return self._push(meeting)

    def _push(self, meeting: Meeting) -> list[Effect]:
        share = 1.0 / (len(meeting.targets) + 1)
        self.weight *= share
        return [Combine(SHARE, {SUM: share}), *meeting.send(SHARE, "push", weight_note(self.weight))]

    def mix(self, meeting: Meeting) -> list[Effect]:
        there, kept = meeting.there("push"), self.weight
        made_up = sum(self.given.get(sender, kept) for sender in meeting.lost("push"))
        self.given.update({sender: meeting.said("push", sender) for sender in there})
        for sender in there:
            self.weight += self.given[sender]
        self.weight += made_up
        came = {meeting.slot("push", sender): 1.0 for sender in there}
        return [Combine(SUM, {SHARE: 1.0 + made_up / kept, **came}), Combine(MODEL, {SUM: 1.0 / self.weight})]


def weight_note(weight: float) -> bytes:
    """A weight for the way."""
    return struct.pack("<d", weight)


def weight_in(note: bytes) -> float:
    """The weight in a message, which may come from a stranger."""
    if len(note) != 8:
        raise ValueError(f"a note of {len(note)} bytes is no weight; allowed: 8")
    (weight,) = struct.unpack("<d", note)
    if not (math.isfinite(weight) and weight > 0):
        raise ValueError(f"{weight} is no weight")
    return float(weight)
