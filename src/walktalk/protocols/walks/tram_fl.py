"""Tram-FL: a model that goes where it finds the labels that it has seen too little of.

Maejima, Nishio, Yamazaki and Hara-Azumi, "Tram-FL: routing-based model training for decentralized federated learning"
(2023). The model carries how often it was trained on each label, l. At node v, with q_v the shares of v's labels and
K_v the steps that it would take there,

    x ← x after K_v local steps of node v,    l ← l + K_v q_v
    next: the node i with the least variance over labels of l + K_i q_i

(The abstract and the routing of the authors' code were read. There l counts the batches' labels; here it is reckoned
from q, which all nodes know beforehand, as there. Of nodes that do equally well the next by number goes first, so
without labels it is a cyclic tour. A node whose labels are even is not left, as there. How the paper of 2026 schedules
steps we do not know: with `steps`, node i takes steps n_i / mean(n). Several models are mixed as in Multi-Walk.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from walktalk.core.errors import SpecError
from walktalk.graphs import Floats
from walktalk.protocols.effects import Effect, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.tokens.protocol import Walks
from walktalk.protocols.mechanisms.tokens.rule import WalkRule, walk_slot
from walktalk.protocols.mechanisms.tokens.stops import StopRule, way_in
from walktalk.protocols.self_description import InLabel, Law
from walktalk.protocols.walks.multi_walk import AlgorithmOne


@dataclass(frozen=True)
class TramFL(Walks):
    """A model that travels to the node whose labels even out best what it has been trained on.

    Args:
        labels: for each node, how many samples it has of each label; left out: all nodes alike.
        steps: local steps of a node with a mean number of samples, others in proportion; 0: as the study says.
        walks: how many, R.
    """

    labels: Annotated[tuple[tuple[float, ...], ...], InLabel("-labels")] = ()
    steps: Annotated[int, Ge(0)] = 0
    walks: Annotated[int, Ge(1), InLabel("-{}")] = 1
    name: ClassVar[str] = "tram_fl"
    title: ClassVar[str] = "Tram-FL"
    models_travel: ClassVar[bool] = True
    colour: ClassVar[str] = "#7A6A2B"
    paper: ClassVar[str] = "Maejima et al. 2023; steps by data after its sequel of 2026"
    keeps: ClassVar[str] = "R models travel, each with counts of labels that it has seen; all know each other's labels"
    sends: ClassVar[str] = "one model a hop; along a shortest path where the next node is no neighbour"
    guarantees: ClassVar[str] = "labels are seen as evenly as the nodes' data allow; a constant rate leaves a rest"
    conserves: ClassVar[tuple[Law, ...]] = ("once",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(len(row) != len(self.labels[0]) or not sum(row) or min(row) < 0 for row in self.labels):
            raise SpecError("labels: every node needs as many numbers from 0 as there are labels, not all of them 0")

    def check(self, nodes: int) -> None:
        super().check(nodes)
        if self.labels and len(self.labels) != nodes:
            raise SpecError(f"labels: there are {len(self.labels)} rows for {nodes} nodes; one for each is needed")

    @cached_property
    def gains(self) -> Floats:
        """K_i q_i of all nodes, a row each."""
        counts = np.array(self.labels or [[1.0]])
        steps = np.maximum(np.round(self.steps * counts.sum(axis=1) / counts.sum(axis=1).mean()), 1)
        return np.asarray(steps[:, None] * counts / counts.sum(axis=1, keepdims=True))

    def rule(self, around: NetworkView) -> WalkRule:
        return Routed(around, self)


class Routed(StopRule, AlgorithmOne):
    """Algorithm 1 with Tram-FL's choice of the next node in place of line 11; l is what the walk remembers."""

    def __init__(self, around: NetworkView, plan: TramFL) -> None:
        super().__init__(around)
        self.plan = plan

    def work(self, walk: int, state: bytes, random: Random) -> tuple[list[Effect], bytes]:
        steps = round(float(self._gains(self.around.node).sum())) if self.plan.steps else 0
        return [Train(walk_slot(walk), walk, steps)], state

    def learn(self, event: Trained, state: bytes) -> tuple[list[Effect], bytes]:
        way, effects = way_in(state, self.around.node), super().learn(event, state)[0]
        seen = self._seen(way.memory) + (self._gains(self.around.node) if event.steps else 0.0)
        return effects, way._replace(memory=seen.astype("<f4").tobytes()).encode()

    def stops(self, after: int, memory: bytes, random: Random) -> Iterator[tuple[int, bytes]]:
        nodes, known = np.array(self.everybody), self.plan.gains
        table = np.vstack([known, np.tile(known.mean(axis=0), (len(nodes) - len(known), 1))])
        spread = np.round((self._seen(memory) + table).var(axis=1), 4)  # equal, but for what floats make of it
        for place in np.lexsort((nodes, nodes <= after, spread)):
            yield int(nodes[place]), memory

    def _seen(self, memory: bytes) -> Floats:
        """How often a walk was trained on each label."""
        wide = self.plan.gains.shape[1]
        return np.frombuffer(memory, "<f4").astype(float) if len(memory) == 4 * wide else np.zeros(wide)

    def _gains(self, node: int) -> Floats:
        """K_i q_i of a node; the mean of all for one that has joined."""
        gains = self.plan.gains
        return np.asarray(gains[node] if node < len(gains) else gains.mean(axis=0))
