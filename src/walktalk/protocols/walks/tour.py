"""The tour: a model that visits all nodes in turn, lap by lap; medicine's travelling model.

Chang et al., "Distributed deep learning networks among institutions for medical imaging" (2018), who call it cyclic
weight transfer; Souza et al., "An analysis of the effects of limited training data in distributed learning scenarios
for brain age prediction" (2022), who call it a travelling model. One lap, with π the order of the nodes in it:

    for v = π_1, …, π_V:    x ← x after the local training of node v, from x
    the next lap: the same π, or one that is drawn anew

Several tours (R) are mixed at one node, as in Multi-Walk, of which line 11 alone is another: so everybody is visited as
often as everybody else. Where the next node is no neighbour the model takes a shortest path, and every hop is paid.
(Abstracts were read; those papers have one model, so the mixing is ours, and so is who draws the order of a lap: the
node that ends the one before. Who joins comes in where a hash puts it.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from walktalk.core.errors import SpecError
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.tokens.protocol import Walks
from walktalk.protocols.mechanisms.tokens.rule import WalkRule
from walktalk.protocols.mechanisms.tokens.stops import StopRule, cyclic_lap, shuffled_lap
from walktalk.protocols.self_description import InLabel, Law
from walktalk.protocols.walks.multi_walk import AlgorithmOne

_LAP = struct.Struct("<II")  # the seed of a lap, and the node that it began at
DRAWS = 64  # of a lap that does not begin where the last one ended


@dataclass(frozen=True)
class Tour(Walks):
    """A model that travels to all nodes in turn, lap by lap, and is trained at each; or several, mixed at one node.

    Args:
        walks: how many tours, R.
        laps: the order of the nodes in a lap: drawn anew for each (shuffled), or always the same (cyclic).
        order: of a cyclic lap; nodes that it does not name come behind, by their numbers, as all do if it is left out.
    """

    walks: Annotated[int, Ge(1), InLabel("-{}")] = 1
    laps: Annotated[Literal["shuffled", "cyclic"], InLabel("-{}")] = "shuffled"
    order: Annotated[tuple[int, ...], InLabel("-order")] = ()
    name: ClassVar[str] = "tour"
    also_known_as: ClassVar[tuple[str, ...]] = ("travelling_model", "traveling_model")
    known_forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {"cyclic_weight_transfer": {"laps": "cyclic"}}
    models_travel: ClassVar[bool] = True
    means_of_models: ClassVar[bool] = True
    colour: ClassVar[str] = "#C0563B"
    paper: ClassVar[str] = "Chang et al. 2018 (cyclic weight transfer); Souza et al. 2022 (travelling model)"
    keeps: ClassVar[str] = "R models travel; the aggregator has a copy of each from its last visit"
    sends: ClassVar[str] = "one model a hop; along a shortest path where the next node is no neighbour"
    guarantees: ClassVar[str] = "every lap visits every living node once; a constant rate leaves a rest on unlike nodes"
    conserves: ClassVar[tuple[Law, ...]] = ("once",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order and self.laps != "cyclic":
            raise SpecError("order: it is the order of a cyclic lap; set laps: cyclic")
        if len({*self.order}) < len(self.order) or min(self.order, default=0) < 0:
            raise SpecError(f"order: each node can be named once, by its number from 0 (you gave {[*self.order]})")

    @property
    def title(self) -> str:
        kind = "tour" if self.laps == "shuffled" else "cyclic tour"
        return f"one {kind}" if self.walks == 1 else f"{self.walks} {kind}s"

    def check(self, nodes: int) -> None:
        super().check(nodes)
        if max(self.order, default=0) >= nodes:
            raise SpecError(f"order: there is no node {max(self.order)}; allowed: 0 to {nodes - 1}")

    def rule(self, around: NetworkView) -> WalkRule:
        return Touring(around, self)


class Touring(StopRule, AlgorithmOne):
    """Algorithm 1 with a lap in place of line 11."""

    __slots__ = ("tour",)

    def __init__(self, around: NetworkView, tour: Tour) -> None:
        super().__init__(around)
        self.tour = tour

    def stops(self, after: int, memory: bytes, random: Random) -> Iterator[tuple[int, bytes]]:
        cyclic, stop = self.tour.laps == "cyclic", after
        seed, origin = _LAP.unpack(memory) if len(memory) == _LAP.size else (random.getrandbits(32), after)
        while True:
            lap = cyclic_lap(self.tour.order, self.everybody) if cyclic else shuffled_lap(seed, self.everybody)
            stop = lap.after(stop)
            if stop == origin and not cyclic:
                seed, origin = self._new_lap(after, random)
                stop = origin
            yield stop, _LAP.pack(seed, origin)

    def _new_lap(self, last: int, random: Random) -> tuple[int, int]:
        """The seed of the next lap, and its first node: another than the last of this one, where there is another."""
        for _ in range(DRAWS):
            seed = random.getrandbits(32)
            first = shuffled_lap(seed, self.everybody).order[0]
            if first != last:
                break
        return seed, first
