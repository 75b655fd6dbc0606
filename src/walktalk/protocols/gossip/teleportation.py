"""Teleportation (Takezawa and Stich 2025): a few models, at other nodes in every round, gossip on a small graph.

    a(t): the k nodes that have the models in round t, drawn anew in every round, all different
    x_r½ = x_r − η g_a(x_r),  a = a_r(t),    x_r ← Σ_s W_rs x_s½,   r, s = 1 … k, at node a_r(t+1)

W is that of a graph of k, however many nodes there are, so models agree as fast as k nodes would, and everybody's data
count. A node sends what it trained to those that have the neighbours of its model next, and they average: the same as
averaging first and sending the mean on. With k = V it is D-PSGD in the order train, then mix, of models that change
their places; with k = 1 one model at one random node after the other. All draw from one seed, so that a node knows when
its turn is, and whom to wait for. (Written from the paper's abstract and from memory of it.)

Where nodes and messages are lost (of which the paper says nothing; see `mechanisms.turns`) the mean of all is kept no
more exactly; with one model, or where links are lost for long, take walks, which are watched over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.core.errors import GraphError, SpecError
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph, build
from walktalk.protocols.effects import Combine, Effect, Train, apply_update
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, NetworkView
from walktalk.protocols.mechanisms.meeting import MODEL, Meeting
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.mechanisms.turns import TurnNode, in_turns, mean_for_next, places_of
from walktalk.protocols.self_description import BALANCED, COMPLETE, Demand


@dataclass(frozen=True)
class Teleportation(NeighbourRounds):
    """A few models that are at other nodes in every round, and averaged with each other along a small graph.

    Args:
        active: how many models there are, k; so many nodes train in a round.
        topology: of the models' graph: the name of one that needs no settings, such as cycle, exponential or complete.
        steps: local steps of a training; 0: as many as the study says.
        seed: of the draws, which all nodes share.
    """

    active: Annotated[int, Ge(1)] = 4
    topology: str = "cycle"
    steps: Annotated[int, Ge(0)] = 0
    seed: int = 0
    name: ClassVar[str] = "teleportation"
    proved: ClassVar[str] = "Takezawa & Stich 2025, here with four models on a cycle"
    bound: ClassVar[str] = "teleportation_order"
    paper: ClassVar[str] = "Takezawa and Stich, ICLR 2025"
    keeps: ClassVar[str] = "k models, each at another node in every round"
    sends: ClassVar[str] = "each of k models to those that average it next, in a round; the other nodes send nothing"
    guarantees: ClassVar[str] = (
        "the mean of the k models moves by the mean update alone, and they agree as fast as on a graph of k nodes; a "
        "constant rate leaves a rest on unlike nodes"
    )
    title: ClassVar[str] = "Teleportation"
    description: ClassVar[str] = (
        "A few models jump to other nodes in every round, train there, and are averaged with each other."
    )
    kinds: ClassVar[tuple[str, ...]] = ("token",)
    colour: ClassVar[str] = "#3F8A8C"
    demands: ClassVar[tuple[Demand, ...]] = (COMPLETE,)
    made_for: ClassVar[str] = "complete"
    models_travel: ClassVar[bool] = True

    def check(self, nodes: int) -> None:
        super().check(nodes)
        if self.active > nodes > 1:
            raise SpecError(f"active: {self.active} is not possible with {nodes} nodes; {nodes} or fewer are needed")
        BALANCED.check(self.graph(nodes), self.label)

    def active_models(self, nodes: int) -> int:
        return min(self.active, nodes)

    def graph(self, nodes: int) -> Graph:
        """That of the models."""
        models = self.active_models(nodes)
        try:
            return build(self.topology if models > 1 else "complete", models, seed=Seed(self.seed).child("topology"))
        except GraphError as error:
            raise SpecError(f"topology: {error}") from error

    def machine(self, network_view: NetworkView) -> Machine:
        meeting = Meeting(in_turns(network_view, self.graph, Seed(self.seed)), self.messages, {})
        return TurnNode(self, meeting, TrainAndHandOn(self.steps), self.patience if self.resilient else None)


class TrainAndHandOn(Rule):
    """`MODEL` is what the node trained last, until it averages what has come for its next turn."""

    __slots__ = ("steps",)

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def member(self, meeting: Meeting) -> int:
        return places_of(meeting.around).model_at(meeting.around.node, meeting.round)

    def work(self) -> Train:
        return Train(MODEL, steps=self.steps)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        return [apply_update(MODEL), *meeting.send(MODEL, "token")]

    def mix(self, meeting: Meeting) -> list[Effect]:
        mean = mean_for_next(meeting, MODEL, "token")
        return [Combine(MODEL, mean)] if mean else []
