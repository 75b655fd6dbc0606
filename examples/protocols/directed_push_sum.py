"""Stochastic gradient push (SGP, Assran et al. 2019): averaging where links go one way only.

Every node keeps a model x and a weight w, which starts at 1, and trains at z = x/w. In every round it sends equal
shares of x and w to those that it can reach, keeps one itself, and adds up what comes:

    x_i ← Σ_j p_ij (x_j − η ∇f_j(z_j)),    w_i ← Σ_j p_ij w_j,    z_i = x_i / w_i,    with columns of P that sum to 1.

Σx and Σw are conserved, so z comes to the mean although rows of P do not sum to one: no link needs a way back. In a
specification: `algorithms: [{name: "directed_push_sum:DirectedPushSum"}]`; `walktalk run` finds the file in the folder
where it is started. (Of the algorithms that come with walktalk, `sgp` is this one.)
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import walktalk as wt
from walktalk.protocols import (
    INITIAL,
    MEMBER,
    UPDATE,
    Arrival,
    Combine,
    Context,
    Effect,
    Event,
    Forget,
    Machine,
    Message,
    NetworkView,
    Received,
    Record,
    Send,
    Started,
    Train,
    Trained,
)

X, Z, SHARE = "x", "z", "share"  # slots: the numerator, the model that is trained, what is sent


@wt.register
@dataclass(frozen=True)
class DirectedPushSum(wt.Protocol):
    """Every node pushes shares of its model along one-way links, with a weight that puts the average right."""

    title: ClassVar[str] = "push-sum in rounds"
    family: ClassVar[str] = "gossip"
    colour: ClassVar[str] = "#7A5195"
    conserves: ClassVar[tuple[str, ...]] = ("sum",)
    on_directed_graphs: ClassVar[bool] = True

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return {"push": Arrival("push/{round}/{sender}", once=True)}

    def machine(self, network_view: NetworkView) -> Machine:
        return DirectedPushSumNode(network_view)


class DirectedPushSumNode(Machine):
    """One node; whoever it hears may be a round ahead of it."""

    def __init__(self, around: NetworkView) -> None:
        self.around, self.round, self.weight, self.waits = around, 0, 1.0, False
        self.came: dict[int, dict[int, float]] = {}  # round -> sender -> the weight that came with its share

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Started):
            begin: list[Effect] = [Combine(X, {INITIAL: 1.0}), Combine(Z, {INITIAL: 1.0})]
            return [*begin, Record(MEMBER, self.around.node, Z), Train(Z)]
        if isinstance(event, Trained):
            return [*self.push(), *self.add_up()]
        if isinstance(event, Received):
            self.came.setdefault(event.message.round, {})[event.sender] = struct.unpack("<d", event.message.note)[0]
            return self.add_up()
        return []

    def push(self) -> list[Effect]:
        """Apply the update, and send equal shares; running statistics weigh as much as the model that was trained."""
        targets, _ = self.around.meets(self.round)
        share = 1.0 / (len(targets) + 1)
        learn = Combine(X, {X: 1.0, UPDATE: 1.0}, {UPDATE: self.weight})
        self.weight, self.waits = self.weight * share, True
        message = Message("push", round=self.round, note=struct.pack("<d", self.weight))
        return [
            learn,
            Combine(SHARE, {X: share}),
            *(Send(to, message, SHARE) for to in targets),
            Combine(X, {SHARE: 1.0}),
        ]

    def add_up(self) -> list[Effect]:
        """When all of this round are here, go to the next."""
        _, sources = self.around.meets(self.round)
        here = self.came.get(self.round, {})
        if not self.waits or len(here) < len(sources):
            return []
        slots = [f"push/{self.round}/{sender}" for sender in here]
        self.weight += sum(here.values())
        self.came.pop(self.round, None)
        self.round, self.waits = self.round + 1, False
        return [
            Combine(X, {X: 1.0, **dict.fromkeys(slots, 1.0)}),
            *(Forget(slot) for slot in slots),
            Combine(Z, {X: 1.0 / self.weight}),
            Record(MEMBER, self.around.node, Z),
            Train(Z),
        ]
