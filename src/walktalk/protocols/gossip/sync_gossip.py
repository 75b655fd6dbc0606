"""D-PSGD (Lian et al. 2017): in every round nodes average with all neighbours, and everybody waits for its own.

    x_i ← Σ_j W_ij x_j − η g_i(x_i)

W is the Metropolis–Hastings matrix. A node sends its model of the round while it trains on it, and goes to the next
round when its own update and all its neighbours' models are there; so the slowest node sets the pace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from walktalk.protocols.effects import UPDATE, Arrival, Combine, Effect
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.meeting import MODEL, Meeting
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import FIXED, Demand, Law

OWN = "own_update"  # kept while neighbours are awaited
# A neighbour that cannot keep up is sent the model of the newest round alone: the others go on without it.
MESSAGES = {"round": Arrival("round/{round}/{sender}", latest=True)}
UNCHANGING = FIXED._replace(
    otherwise="network: {graph} changes by round, of which {label} knows nothing; take local_dsgd, which trains first "
    "and then mixes, or a fixed graph"
)


@dataclass(frozen=True)
class SyncGossip(NeighbourRounds):
    """Every node trains and mixes with all neighbours, round by round.

    With a momentum in the study's optimizer and `optimizer_state: node` it is D-PSGD with momentum, D-SGDm.
    """

    name: ClassVar[str] = "sync_gossip"
    also_known_as: ClassVar[tuple[str, ...]] = ("d_psgd", "dpsgd", "dsgd", "decentralized_sgd")
    proved: ClassVar[str] = "Koloskova et al. 2020"
    bound: ClassVar[str] = "d_psgd_order"
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

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return MESSAGES

    def rule(self, around: NetworkView) -> Rule:
        return MixWhileTraining()


class MixWhileTraining(Rule):
    """Wx + update: the model is on its way to the neighbours while it is trained."""

    __slots__ = ()

    def announce(self, meeting: Meeting) -> list[Effect]:
        return meeting.send(MODEL, "round")

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        return [Combine(OWN, {UPDATE: 1.0})]

    def mix(self, meeting: Meeting) -> list[Effect]:
        row = meeting.mean(MODEL, "round")
        own, others = row[MODEL], {slot: weight for slot, weight in row.items() if slot != MODEL}
        return [Combine(MODEL, {**row, OWN: 1.0}, {OWN: own, **others})]
