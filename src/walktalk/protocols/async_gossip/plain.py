"""Asynchronous gossip, AD-PSGD (Lian et al. 2018; the paper's Algorithm 2), with three ways to mix.

    x_i ← x_i − η g_i(x_i of when the training began),    x_i, x_j ← (x_i + x_j) / 2 with a random neighbour j

`pairwise`, the default and what is really run (Lian et al. 2018, Section 3.2): after its update the active node
averages with one random neighbour. No locks, no deadlock, no bipartite graph: the passive node answers with its model
from before the average, and each side adds half the difference it was sent, so the sum of the two is conserved
whatever else happened to either in between.

`neighbourhood`: the same exchange with all neighbours at once, with the Metropolis–Hastings weights p_ij = p_ji.

`matrix`: Algorithm 2 to the letter, all nodes mix with P after every single update; only a simulator can.

With `overlap` a node trains on at once while its offer and the answer are on the way, as the paper's two threads do
(Lian et al. 2018: computing and communicating go on at the same time); the answer is added when it comes, and nothing
else is offered before: with many late answers at once, averaging would overshoot. Without it, a node waits for the
answer and trains on what came of it.

This file is for a world without failures; `resilient` is the same for a world with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from annotated_types import Gt

from walktalk.errors import SpecError
from walktalk.protocols.async_gossip.habit import MODEL, Habit
from walktalk.protocols.async_gossip.resilient import MESSAGES, ResilientGossip
from walktalk.protocols.effects import (
    INITIAL,
    MEMBER,
    Combine,
    Effect,
    Forget,
    MixEveryone,
    Record,
    Send,
    Train,
    absorb,
    apply_update,
)
from walktalk.protocols.events import Event, Received, Rejoined, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Protocol, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.self_description import RUNTIMES, InLabel, Law, Runtime

Mixing = Literal["pairwise", "neighbourhood", "matrix"]
OFFERED = "offered"  # the model that this node sent and whose answers it still waits for
LOOKS: dict[str, tuple[str, str, str]] = {  # title, description, colour
    "pairwise": (
        "gossip in pairs",
        "Every node trains its own model and averages it with one random neighbour.",
        "#D55E00",  # vermilion
    ),
    "neighbourhood": (
        "gossip with neighbours",
        "Every node trains its own model and averages it with all neighbours.",
        "#8C510A",  # brown
    ),
    "matrix": (
        "gossip with everybody",
        "After every single training all nodes mix their models; for theory only.",
        "#E69F00",  # orange
    ),
}


@dataclass(frozen=True)
class AsyncGossip(Protocol):
    """Every node trains its own model and averages with neighbours, waiting for nobody.

    Args:
        mixing: with one random neighbour, with all, or (in the simulator alone) everybody with everybody.
        overlap: whether a node trains on while it waits for an answer.
        resilient: whether it survives failures; if left out, where there may be any.
        patience: seconds to wait for the first answers; after that it is known how long they take.
    """

    mixing: Annotated[Mixing, InLabel("-{}", always=True)] = "pairwise"
    overlap: bool = False
    resilient: bool | None = None
    patience: Annotated[float, Gt(0), InLabel("")] = 10.0
    name: ClassVar[str] = "async_gossip"
    family: ClassVar[str] = "gossip"
    paper: ClassVar[str] = "Lian, Zhang, Zhang, Liu, ICML 2018 (AD-PSGD); this study's paper, Algorithm 2"
    keeps: ClassVar[str] = "a model at every node"
    sends: ClassVar[str] = "a model to a random neighbour, or to all, and one back from each"
    guarantees: ClassVar[str] = (
        "mixing never changes the sum of all models; a constant rate leaves a rest on unlike nodes (Theorem 2)"
    )
    conserves: ClassVar[tuple[Law, ...]] = ("sum",)
    means_of_models: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.mixing not in get_args(Mixing):
            raise SpecError(f"mixing: {self.mixing!r} is unknown; allowed: {', '.join(get_args(Mixing))}")
        if not self.patience > 0:
            raise SpecError(f"patience: {self.patience} is not possible; a number above 0 is needed")

    @property
    def title(self) -> str:
        return LOOKS[self.mixing][0] + (", overlapping" if self.overlap else "")

    @property
    def description(self) -> str:
        return LOOKS[self.mixing][1]

    @property
    def messages(self) -> Mapping[str, Arrival]:
        if self.mixing == "matrix":
            return {}
        return MESSAGES if self.resilient else {kind: MESSAGES[kind] for kind in ("offer", "answer")}

    @property
    def colour(self) -> str:
        return LOOKS[self.mixing][2]

    @property
    def runtimes(self) -> tuple[Runtime, ...]:
        return ("sim",) if self.mixing == "matrix" else RUNTIMES

    @property
    def instead(self) -> str:
        return "mixing: pairwise"

    @property
    def survives_failures(self) -> bool:
        return self.mixing != "matrix"  # it mixes all nodes at once, dead or alive

    @property
    def nodes_come_and_go(self) -> bool:  # type: ignore[override]
        return self.mixing != "matrix"

    @classmethod
    def usual(cls) -> tuple[AsyncGossip, ...]:
        return tuple(cls(mixing) for mixing in get_args(Mixing))

    def machine(self, surroundings: Surroundings) -> Machine:
        if self.mixing == "matrix":
            return MatrixGossip(surroundings.node)
        if self.resilient:
            return ResilientGossip(surroundings, self.habit, self.patience)
        return ExchangingGossip(surroundings, self.habit)

    @property
    def habit(self) -> Habit:
        """What its nodes do when."""
        return Habit(everyone=self.mixing == "neighbourhood", overlap=self.overlap)


class MatrixGossip(Machine):
    """A node of Algorithm 2: update (line 5), everyone mixes (line 6), train on (line 7)."""

    __slots__ = ("node",)

    def __init__(self, node: int) -> None:
        self.node = node

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Trained):
            return [apply_update(MODEL, moved=True), MixEveryone(MODEL), Train(MODEL)]
        if isinstance(event, Started):
            return [Combine(MODEL, {INITIAL: 1.0}), Record(MEMBER, self.node, MODEL), Train(MODEL)]
        return []


class ExchangingGossip(Machine):
    """A node that offers its model to one neighbour or to all of them, and answers the offers of others."""

    __slots__ = ("around", "awaited", "habit", "moved", "training")

    def __init__(self, surroundings: Surroundings, habit: Habit) -> None:
        self.around, self.habit = surroundings, habit
        self.awaited = 0  # answers that are still to come
        self.training = False
        self.moved = False  # whether the model was mixed since the training under way began

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received):
            if event.message.kind == "offer":
                return self.answer(event)
            return [*self.take(event), *self.train_on(outside)]
        if isinstance(event, Trained):
            self.training = False
            return [*self.offer(outside), *self.train_on(outside)]
        if isinstance(event, Started):
            start: list[Effect] = [Combine(MODEL, {INITIAL: 1.0}), Record(MEMBER, self.around.node, MODEL)]
            return [*start, *self.train_on(outside)]
        if isinstance(event, Rejoined):
            return [Record(MEMBER, self.around.node, MODEL), *self.train_on(outside)]
        return []

    def train_on(self, outside: Outside) -> list[Effect]:
        if self.training or (self.awaited and not self.habit.overlap):
            return []
        self.training, self.moved = True, False
        return [self.habit.train(outside)]

    def offer(self, outside: Outside) -> list[Effect]:
        """The update is applied to the model of now, which others may have moved meanwhile (line 5)."""
        around = self.around
        effects: list[Effect] = [apply_update(MODEL, self.moved), Record(MEMBER, around.node, MODEL)]
        if self.awaited or not around.neighbours:
            return effects
        partners = self.habit.partners(around.neighbours, outside)
        self.awaited = len(partners)
        return [*effects, Combine(OFFERED, {MODEL: 1.0}), *(Send(to, Message("offer"), MODEL) for to in partners)]

    def answer(self, event: Received) -> list[Effect]:
        """Passive side: send the model of before, then add the weighted difference."""
        sender, weight = event.sender, self.habit.weight(self.around, event.sender)
        self.moved = True
        return [
            Send(sender, Message("answer"), MODEL),
            Combine(MODEL, {MODEL: 1.0 - weight, event.slot: weight}),
            Forget(event.slot),
            Record(MEMBER, self.around.node, MODEL),
        ]

    def take(self, event: Received) -> list[Effect]:
        """Active side: add the same weighted difference with the other sign; then train on, once none is awaited."""
        self.awaited -= 1
        self.moved = True
        effects: list[Effect] = [
            absorb(MODEL, MODEL, self.habit.weight(self.around, event.sender), event.slot, OFFERED),
            Forget(event.slot),
            Record(MEMBER, self.around.node, MODEL),
        ]
        return effects if self.awaited else [*effects, Forget(OFFERED)]
