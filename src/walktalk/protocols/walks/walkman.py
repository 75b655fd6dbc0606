"""Walkman: ADMM along a random walk (Mao, Yuan, Hu, Gu, Sayed, Yin, "Walkman", 2020; without a regularizer).

The walk carries z, the mean over all nodes of x_v + λ_v / β; node v keeps x_v and its dual λ_v. Where it comes:

    x_v ← prox of f_v / β at z − λ_v / β,   the minimizer of f_v(x) + β/2 ‖x − z + λ_v / β‖²
    λ_v ← λ_v + β (x_v − z)
    z ← z + (change of x_v + λ_v / β) / V

The prox is a local training that is pulled to z − λ_v / β, as exact as its steps. At rest x_v = z and λ_v = −∇f_v(z)
everywhere, so the gradients sum to zero: it comes to the optimum of unlike nodes with a constant β, also where the prox
is not exact. One model a hop, two at a node. The abstract was read and the rule is from memory of the paper, with the
sign of λ turned round.

After a failure, and when nodes join or leave, the walk may begin anew (`tokens.notes`): then it counts the nodes that
it has been to since, and z is the mean over those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt

from walktalk.protocols.effects import INITIAL, UPDATE, Combine, Effect, Forget, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.tokens.protocol import Walks
from walktalk.protocols.mechanisms.tokens.rule import Counted, NotingRule, WalkRule, walk_slot
from walktalk.protocols.walks.multi_walk import AlgorithmOne

LOCAL, DUAL = "local", "dual"  # x_v and λ_v
PROX, ANCHOR = "prox", "anchor"  # x_v while it is trained, and what it is pulled to


@dataclass(frozen=True)
class Walkman(Walks):
    """A walk that carries a consensus, and nodes that each come to agree with it, by ADMM.

    Args:
        beta: how hard a local training is pulled to the walk's model, β; times the learning rate below 1.
        steps: of that training; 0: as many as the study says.
        aggregator: the node whose last sight of the walk is what the run puts out.
    """

    beta: Annotated[float, Gt(0)] = 1.0
    steps: Annotated[int, Ge(0)] = 0
    walks: ClassVar[int] = 1
    name: ClassVar[str] = "walkman"
    title: ClassVar[str] = "Walkman"
    description: ClassVar[str] = (
        "A walk that carries a consensus; every node that it visits pulls it and is pulled to it."
    )
    colour: ClassVar[str] = "#A0522D"
    needs_own_gradients: ClassVar[str] = "pulls every step of a training back to a model"
    paper: ClassVar[str] = "Mao et al. 2020"
    keeps: ClassVar[str] = "the walk; a model and a dual at every node"
    sends: ClassVar[str] = "one model a hop"
    guarantees: ClassVar[str] = (
        "the walk is the mean over nodes of the model and the dual over β, always; exact for unlike nodes"
    )

    def rule(self, around: NetworkView) -> WalkRule:
        return Consensus(around, self.beta, self.steps)


class Consensus(NotingRule, AlgorithmOne):
    """Keeps x_v and λ_v at the node, and z as the mean over the nodes that the walk has counted.

    Before anything is learned every node has x_v = x_0 and λ_v = 0, so x_0 is the mean over all of them.
    """

    __slots__ = ("beta", "steps")

    carries_count: ClassVar[bool] = True

    def __init__(self, around: NetworkView, beta: float, steps: int) -> None:
        super().__init__(around)
        self.beta, self.steps = beta, steps

    def visit(self, walk: int, begins: bool, noted: bool) -> list[Effect]:
        z = walk_slot(walk)
        fresh = [] if noted else [Combine(LOCAL, {z: 1.0}), Combine(DUAL, {z: 0.0})]
        set_out = [Combine(PROX, {LOCAL: 1.0}), Combine(ANCHOR, {z: 1.0, DUAL: -1.0 / self.beta})]
        return [*fresh, *set_out, Train(PROX, walk, self.steps, anchor=ANCHOR, pull=self.beta)]

    def trained(self, event: Trained, counted: Counted) -> list[Effect]:
        # What the node puts into the mean is x_v + λ_v / β, now 2 x_v − z + (λ_v of before) / β.
        z, before = walk_slot(event.walk), LOCAL if counted.noted else INITIAL
        known = counted.noted or counted.at_first  # else one more that the mean is over: less z, plus its own
        change = {PROX: 2.0, before: -1.0, z: -1.0} if known else {PROX: 2.0, z: -2.0}
        total = {slot: weight / counted.over for slot, weight in change.items()}
        total[z] += 1.0
        return [
            Combine(PROX, {PROX: 1.0, UPDATE: 1.0}, {UPDATE: 1.0}),
            Combine(DUAL, {DUAL: 1.0, PROX: self.beta, z: -self.beta}),
            Combine(z, total, {PROX: 1.0}),
            Combine(LOCAL, {PROX: 1.0}),
            *self.given_up(event.walk),
        ]

    def given_up(self, walk: int) -> list[Effect]:
        return [Forget(PROX), Forget(ANCHOR)]
