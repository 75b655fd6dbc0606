"""D-PSGD (Lian et al. 2017): in every round nodes average with all neighbours, and everybody waits for its own.

    x_i ← Σ_j W_ij x_j − η g_i(x_i)

W is the Metropolis–Hastings matrix. A node sends its model of the round while it trains on it, and goes to the next
round when its own update and all its neighbours' models are there; so the slowest node sets the pace. This file is for
a world without failures; `resilient` is the same for a world with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Gt

from walktalk.errors import SpecError
from walktalk.protocols.demands import FIXED, Demand
from walktalk.protocols.effects import INITIAL, MEMBER, UPDATE, Combine, Effect, Record, Send, Train
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Protocol, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.self_description import InLabel, Law
from walktalk.protocols.sync_gossip.resilient import MESSAGES, MODEL, OWN_UPDATE, ResilientRounds, round_ends
from walktalk.protocols.weights import weights

UNCHANGING = FIXED._replace(
    otherwise="network: {graph} changes by round, of which {label} knows nothing; take local_dsgd, which trains first "
    "and then mixes, or a fixed graph"
)


@dataclass(frozen=True)
class SyncGossip(Protocol):
    """Every node trains and mixes with all neighbours, round by round.

    With a momentum in the study's optimizer and `optimizer_state: node` it is D-PSGD with momentum, D-SGDm.

    Args:
        resilient: whether it survives failures; if left out, where there may be any.
        patience: seconds to wait for late neighbours at first; after that it is known how late they are.
    """

    resilient: bool | None = None
    patience: Annotated[float, Gt(0), InLabel("")] = 10.0
    name: ClassVar[str] = "sync_gossip"
    nodes_come_and_go: ClassVar[bool] = True
    family: ClassVar[str] = "gossip"
    paper: ClassVar[str] = "Lian et al., NeurIPS 2017 (D-PSGD)"
    keeps: ClassVar[str] = "a model at every node"
    sends: ClassVar[str] = "a model to every neighbour in a round"
    guarantees: ClassVar[str] = (
        "the mean of all models moves by the mean gradient alone; a constant rate leaves a rest on unlike nodes"
    )
    title: ClassVar[str] = "gossip in rounds"
    description: ClassVar[str] = "Every node trains, then all wait for their neighbours and average with them."
    colour: ClassVar[str] = "#777777"  # grey
    demands: ClassVar[tuple[Demand, ...]] = (UNCHANGING,)
    conserves: ClassVar[tuple[Law, ...]] = ("sum",)
    averages_at_once: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.patience > 0:
            raise SpecError(f"patience: {self.patience} is not possible; a number above 0 is needed")

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return MESSAGES

    def machine(self, surroundings: Surroundings) -> Machine:
        if self.resilient:
            return ResilientRounds(surroundings, self.patience)
        return RoundNode(surroundings)


class RoundNode(Machine):
    """One node; a neighbour may be one round ahead, never two, because it waits for this one too."""

    __slots__ = ("around", "arrived", "round", "trained")

    def __init__(self, surroundings: Surroundings) -> None:
        self.around = surroundings
        self.round = 0
        self.trained = False
        self.arrived: dict[int, set[int]] = {}  # round -> neighbours whose model of that round is here

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received):
            self.arrived.setdefault(event.message.round, set()).add(event.sender)
            return self.finish_round()
        if isinstance(event, Trained):
            self.trained = True
            return [Combine(OWN_UPDATE, {UPDATE: 1.0}), *self.finish_round()]
        if isinstance(event, Started):
            return [Combine(MODEL, {INITIAL: 1.0}), Record(MEMBER, self.around.node, MODEL), *self.begin_round()]
        return []

    def begin_round(self) -> list[Effect]:
        message = Message("round", round=self.round)
        sends: list[Effect] = [Send(peer, message, MODEL) for peer in self.around.neighbours]
        return [*sends, Train(MODEL)]

    def finish_round(self) -> list[Effect]:
        around = self.around
        here = self.arrived.get(self.round, set())
        if not self.trained or len(here) < len(around.neighbours):
            return []
        mix = round_ends(self.round, weights(around, here))
        self.arrived.pop(self.round, None)
        self.round += 1
        self.trained = False
        return [*mix, Record(MEMBER, around.node, MODEL), *self.begin_round()]
