"""Walkman: ADMM along a random walk (Mao, Yuan, Hu, Gu, Sayed, Yin, "Walkman", 2020; without a regularizer).

The walk carries z, the mean over all nodes of x_v + λ_v / β; node v keeps x_v and its dual λ_v. Where it comes:

    x_v ← prox of f_v / β at z − λ_v / β,   the minimizer of f_v(x) + β/2 ‖x − z + λ_v / β‖²
    λ_v ← λ_v + β (x_v − z)
    z ← z + (change of x_v + λ_v / β) / V

The prox is a local training that is pulled to z − λ_v / β, as exact as its steps. At rest x_v = z and λ_v = −∇f_v(z)
everywhere, so the gradients sum to zero: it comes to the optimum of unlike nodes with a constant β, also where the prox
is not exact. One model a hop, two at a node. The abstract was read and the rule is from memory of the paper, with the
sign of λ turned round.

After a failure the walk may begin anew (`lineage`): then it counts the nodes that it has been to since, and z is the
mean over those.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt

from walktalk.protocols.effects import INITIAL, UPDATE, Combine, Effect, Forget, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, Protocol, Surroundings
from walktalk.protocols.message import Arrival
from walktalk.protocols.multi_walk.plain import GuardKind, check_walks, walk_messages, walk_node
from walktalk.protocols.multi_walk.visits import MetropolisHastings, Visiting, walk_slot
from walktalk.protocols.self_description import InLabel
from walktalk.protocols.walks.lineage import NAME_BYTES, Lineages, Name, name_in

LOCAL, DUAL = "local", "dual"  # x_v and λ_v
PROX, ANCHOR = "prox", "anchor"  # x_v while it is trained, and what it is pulled to
_COUNT = struct.Struct("<I")


@dataclass(frozen=True)
class Walkman(Protocol):
    """A walk that carries a consensus, and nodes that each come to agree with it, by ADMM.

    Args:
        beta: how hard a local training is pulled to the walk's model, β; times the learning rate below 1.
        steps: of that training; 0: as many as the study says.
        aggregator: the node whose last sight of the walk is what the run puts out.
        resilient: whether it survives failures; if left out, where there may be any.
        heartbeat: seconds between two heartbeats of the aggregator.
        guard: who notices that the walk is lost.
    """

    beta: Annotated[float, Gt(0)] = 1.0
    steps: Annotated[int, Ge(0)] = 0
    aggregator: Annotated[int, Ge(0), InLabel("-at{}")] = 0
    resilient: bool | None = None
    heartbeat: Annotated[float, Gt(0), InLabel("-beat{:g}")] = 1.0
    guard: GuardKind = "aggregator"
    walks: ClassVar[int] = 1
    name: ClassVar[str] = "walkman"
    family: ClassVar[str] = "walks"
    title: ClassVar[str] = "Walkman"
    description: ClassVar[str] = (
        "A walk that carries a consensus; every node that it visits pulls it and is pulled to it."
    )
    colour: ClassVar[str] = "#A0522D"
    paper: ClassVar[str] = "Mao et al. 2020"
    keeps: ClassVar[str] = "the walk; a model and a dual at every node"
    sends: ClassVar[str] = "one model a hop"
    guarantees: ClassVar[str] = (
        "the walk is the mean over nodes of the model and the dual over β, always; exact for unlike nodes"
    )

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return walk_messages(bool(self.resilient))

    def check(self, nodes: int) -> None:
        super().check(nodes)
        check_walks(self.walks, self.aggregator, nodes)

    def active_models(self, nodes: int) -> int:
        return 1

    def machine(self, surroundings: Surroundings) -> Machine:
        visiting = Consensus(surroundings.nodes, self.beta, self.steps)
        return walk_node(self, surroundings, visiting, MetropolisHastings())


class Consensus(Visiting):
    """x_v and λ_v of a node, and how many nodes the walk's mean is over."""

    __slots__ = ("beta", "lineages", "nodes", "steps")

    def __init__(self, nodes: int, beta: float, steps: int) -> None:
        self.nodes, self.beta, self.steps = nodes, beta, steps
        self.lineages = Lineages()

    @property
    def noted(self) -> bool:
        """x_v and λ_v are what a node has put into the mean."""
        return True

    @property
    def first(self) -> bytes:
        """Before anything is learned every node has x_v = x_0 and λ_v = 0, so x_0 is the mean over all of them."""
        return _carried(Name(), self.nodes)

    def rejoined(self) -> None:
        self.lineages.rejoined()

    def work(self, walk: int, more: bytes, random: Random) -> tuple[list[Effect], bytes]:
        name, begins = self.lineages.meets(walk, name_in(more), random)
        count = 0 if begins else _count(more)
        z, effects = walk_slot(walk), []
        if not self.lineages.has(walk, name):
            effects += [Combine(LOCAL, {z: 1.0}), Combine(DUAL, {INITIAL: 0.0})]
        effects += [Combine(PROX, {LOCAL: 1.0}), Combine(ANCHOR, {z: 1.0, DUAL: -1.0 / self.beta})]
        train = Train(PROX, walk, self.steps, anchor=ANCHOR, pull=self.beta)
        return [*effects, train], _carried(name, count)

    def learn(self, event: Trained, more: bytes) -> tuple[list[Effect], bytes]:
        name, count, z = name_in(more), _count(more), walk_slot(event.walk)
        done: list[Effect] = [Forget(PROX), Forget(ANCHOR)]
        if not event.steps or name is None:
            return done, more
        known = self.lineages.has(event.walk, name)
        self.lineages.notes(event.walk, name)
        # What the node puts into the mean is x_v + λ_v / β, now 2 x_v − z + (λ_v of before) / β.
        if known:
            change, over = {PROX: 2.0, LOCAL: -1.0, z: -1.0}, count
        elif count == self.nodes and not name.number:
            change, over = {PROX: 2.0, INITIAL: -1.0, z: -1.0}, count
        else:
            change, over = {PROX: 2.0, z: -2.0}, count + 1  # one more that the mean is over: less z, plus its own
        total = {slot: weight / over for slot, weight in change.items()}
        total[z] += 1.0
        effects: list[Effect] = [
            Combine(PROX, {PROX: 1.0, UPDATE: 1.0}, {UPDATE: 1.0}),
            Combine(DUAL, {DUAL: 1.0, PROX: self.beta, z: -self.beta}),
            Combine(z, total, {PROX: 1.0}),
            Combine(LOCAL, {PROX: 1.0}),
        ]
        return [*effects, *done], _carried(name, over)


def _carried(name: Name, count: int) -> bytes:
    return name.encode() + _COUNT.pack(count)


def _count(more: bytes) -> int:
    """How many nodes the mean is over."""
    try:
        (count,) = _COUNT.unpack_from(more, NAME_BYTES)
    except struct.error as error:
        raise ValueError(f"no count: {error}") from error
    return int(count)
