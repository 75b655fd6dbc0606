"""Epidemic Learning (de Vos, Farhadkhani, Guerraoui, Kermarrec, Pires, Sharma 2023): new random neighbours every round.

    x_i ← mean of x_i½ and all x_j½ that came,    x_j½ = x_j − η g_j, sent to s others drawn anew in every round

Local: each draws its s receivers alone, so s arrive in expectation only, and the mean is kept in expectation. Oracle:
a random graph on which everybody sends s and gets s, and the mean is kept exactly. All draw from one seed, so that a
node knows whom to wait for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from walktalk.core.errors import SpecError
from walktalk.core.seeds import Seed
from walktalk.graphs import RandomCirculants, RandomTargets, Rounds
from walktalk.protocols.gossip.local_dsgd import TrainThenMix
from walktalk.protocols.machine import Machine, NetworkView
from walktalk.protocols.mechanisms.meeting import drawn_among
from walktalk.protocols.mechanisms.rounds import NeighbourRounds
from walktalk.protocols.self_description import COMPLETE, Demand, Law


@dataclass(frozen=True)
class EpidemicLearning(NeighbourRounds):
    """Every node sends its model to a few others, drawn anew in every round.

    Args:
        peers: how many others a node sends to, s.
        draw: "oracle", everybody gets as many as it sends; "local", each draws its own alone.
        seed: of the draws, which all nodes share.
    """

    peers: Annotated[int, Ge(1)] = 2
    draw: Literal["oracle", "local"] = "oracle"
    seed: int = 0
    name: ClassVar[str] = "epidemic_learning"
    also_known_as: ClassVar[tuple[str, ...]] = ("el",)
    known_forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "el_oracle": {"draw": "oracle"},
        "el_local": {"draw": "local"},
    }
    proved: ClassVar[str] = "de Vos et al. 2023"
    bound: ClassVar[str] = "epidemic_order"
    paper: ClassVar[str] = "de Vos et al., NeurIPS 2023"
    keeps: ClassVar[str] = "a model at every node"
    sends: ClassVar[str] = "a model to s others, new ones in every round"
    guarantees: ClassVar[str] = "the mean of all models is kept: exactly with draw oracle, in expectation with local"
    title: ClassVar[str] = "Epidemic Learning"
    description: ClassVar[str] = "Every node trains, then sends its model to a few others, new ones in every round."
    colour: ClassVar[str] = "#4F7942"
    demands: ClassVar[tuple[Demand, ...]] = (COMPLETE,)
    made_for: ClassVar[str] = "complete"

    @property
    def conserves(self) -> tuple[Law, ...]:
        return ("sum",) if self.draw == "oracle" else ()

    def check(self, nodes: int) -> None:
        super().check(nodes)
        if self.peers >= nodes > 1:
            raise SpecError(f"peers: {self.peers} is not possible with {nodes} nodes; {nodes - 1} or fewer are needed")

    def machine(self, network_view: NetworkView) -> Machine:
        return self.node(drawn_among(network_view, self.draws), TrainThenMix())

    def draws(self, nodes: int) -> Rounds:
        """Whom each of so many nodes sends to in which round."""
        seed, s = Seed(self.seed).child("epidemic"), min(self.peers, nodes - 1)
        return RandomCirculants(nodes, s, seed) if self.draw == "oracle" else RandomTargets(nodes, s, seed)
