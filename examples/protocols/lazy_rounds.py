"""Gossip in rounds that takes only a share of every average: a rule of one's own, in rounds that are there already.

    x_i½ = x_i − η g_i,    x_i ← (1 − γ) x_i½ + γ Σ_j W_ij x_j½

With γ = 1 it is `local_dsgd`. A smaller γ leaves models further apart, for the same messages. `NeighbourRounds` sends,
waits and goes on, and survives failures, also where neighbours are late, die or come back; a `Rule` says what is
trained, sent and mixed. In a specification: `algorithms: [{name: "lazy_rounds:LazyRounds", share: 0.5}]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Gt, Le

import walktalk as wt
from walktalk.protocols import (
    BALANCED,
    HALF,
    MODEL,
    UPDATE,
    Arrival,
    Combine,
    Demand,
    Effect,
    Machine,
    Meeting,
    NeighbourRounds,
    NetworkView,
    Rule,
    Train,
    Trained,
    arrivals,
)


# --8<-- [start:protocol]
@wt.register
@dataclass(frozen=True)
class LazyRounds(NeighbourRounds):
    """Every node trains, then goes a part of the way to the average of its neighbours.

    Args:
        share: how far, γ.
    """

    share: Annotated[float, Gt(0), Le(1)] = 0.5
    title: ClassVar[str] = "lazy rounds"
    family: ClassVar[str] = "gossip"
    conserves: ClassVar[tuple[str, ...]] = ("sum",)
    demands: ClassVar[tuple[Demand, ...]] = (BALANCED,)
    on_directed_graphs: ClassVar[bool] = True

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return arrivals("round")  # a slot for each round and sender, to be mixed in once

    def machine(self, network_view: NetworkView) -> Machine:
        return self.node(network_view, PartOfTheWay(self.share))


class PartOfTheWay(Rule):
    """`MODEL` is x, `HALF` is x½."""

    def __init__(self, share: float) -> None:
        self.share = share

    def begin(self) -> list[Effect]:
        return []

    def work(self) -> Train:
        return Train(MODEL)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        return [Combine(HALF, {MODEL: 1.0, UPDATE: 1.0}, {UPDATE: 1.0}), *meeting.send(HALF, "round")]

    def mix(self, meeting: Meeting) -> list[Effect]:
        row = {slot: self.share * weight for slot, weight in meeting.mean(HALF, "round").items()}
        return [Combine(MODEL, {**row, HALF: row[HALF] + 1.0 - self.share})]


# --8<-- [end:protocol]
