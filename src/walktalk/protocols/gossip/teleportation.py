"""Teleportation (Takezawa and Stich 2025): a few models, at other nodes in every round, gossip on a small graph.

    a(t): the k nodes that have the models in round t, drawn anew in every round, all different
    x_r½ = x_r − η g_a(x_r),  a = a_r(t),    x_r ← Σ_s W_rs x_s½,   r, s = 1 … k, at node a_r(t+1)

W is that of a graph of k, however many nodes there are, so models agree as fast as k nodes would, and everybody's data
count. A node sends what it trained to those that have the neighbours of its model next, and they average: the same as
averaging first and sending the mean on. With k = V it is D-PSGD in the order train, then mix, of models that change
their places; with k = 1 one model at one random node after the other. All draw from one seed, so that a node knows when
its turn is, and whom to wait for. (Written from the paper's abstract and from memory of it.)

Where nodes and messages are lost (of which the paper says nothing), the weights of what is there are divided by their
sum, and where nothing is, a node goes on with the model that it had last (`mechanisms.turns`). The mean of all is then
kept no more exactly; with one model, or where links are lost for long, take walks, which are watched over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.core.errors import GraphError, SpecError
from walktalk.core.seeds import Seed
from walktalk.graphs import Graph, Rounds, build
from walktalk.protocols.effects import Combine, Effect, Train, apply_update
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, NetworkView, row_of
from walktalk.protocols.mechanisms.attendance import LAST
from walktalk.protocols.mechanisms.meeting import MODEL, Meeting, everybody_there
from walktalk.protocols.mechanisms.rounds import NeighbourRounds
from walktalk.protocols.mechanisms.turns import TurnNode, TurnRule
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
        there = everybody_there(network_view) if network_view.version else tuple(range(network_view.nodes))
        models = views(self.graph(len(there)))
        around = replace(network_view, rounds=Places(there, len(models), Seed(self.seed), models))
        meeting = Meeting(around, self.messages, {})
        return TurnNode(self, meeting, TrainAndHandOn(self.steps), self.patience if self.resilient else None)


def views(graph: Graph) -> tuple[NetworkView, ...]:
    """The graph of the models, as each of them sees it."""
    degrees = [len(graph.neighbours(one)) for one in range(graph.nodes)]
    return tuple(
        NetworkView(
            one,
            graph.nodes,
            graph.neighbours(one),
            tuple(degrees[other] for other in graph.neighbours(one)),
            heard=graph.reverse.neighbours(one) if graph.directed else None,
            rounds=graph.rounds,
        )
        for one in range(graph.nodes)
    )


@dataclass(frozen=True)
class Places(Rounds):
    """Which node has which model when, and by whom it is averaged."""

    there: tuple[int, ...]  # who takes part
    tokens: int  # how many models there are
    seed: Seed
    models: tuple[NetworkView, ...] = ()  # their graph

    def holders(self, round_: int) -> tuple[int, ...]:
        """The node of every model in a round."""
        return _drawn(self.there, self.tokens, self.seed, round_)

    def turn_after(self, node: int, round_: int) -> int:
        """The next round in which a node has a model; never, for one that leaves."""
        round_ = round_ + 1 if node in self.there else LAST
        while round_ < LAST and node not in self.holders(round_):
            round_ += 1
        return round_

    def row(self, node: int, round_: int) -> dict[int, float]:
        """The row of W of the model that a node has next: the nodes whose models of this round are averaged in it."""
        before, after = self.holders(round_), self.holders(round_ + 1)
        if node not in after:
            return {}
        model = after.index(node)
        others = row_of(self.models[model], round_)
        return {before[one]: weight for one, weight in {model: 1.0 - sum(others.values()), **others}.items()}

    def sources(self, node: int, round_: int) -> tuple[int, ...]:
        return tuple(other for other in self.row(node, round_) if other != node)

    def targets(self, node: int, round_: int) -> tuple[int, ...]:
        before, after = self.holders(round_), self.holders(round_ + 1)
        if node not in before:
            return ()
        model = before.index(node)
        heard_by = (model, *self.models[model].meets(round_)[0])
        return tuple(after[one] for one in heard_by if after[one] != node)


@lru_cache(maxsize=4096)
def _drawn(there: tuple[int, ...], tokens: int, seed: Seed, round_: int) -> tuple[int, ...]:
    return tuple(seed.child("teleportation", round_).python().sample(there, tokens))


class TrainAndHandOn(TurnRule):
    """`MODEL` is what the node trained last, until it averages what has come for its next turn."""

    __slots__ = ("steps",)

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def begin(self) -> list[Effect]:
        return []

    def turn(self, number: int, around: NetworkView) -> int:
        assert isinstance(around.rounds, Places)
        return around.rounds.turn_after(around.node, number - 1)

    def member(self, meeting: Meeting) -> int:
        assert isinstance(meeting.around.rounds, Places)
        return meeting.around.rounds.holders(meeting.round).index(meeting.around.node)

    def work(self) -> Train:
        return Train(MODEL, steps=self.steps)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        return [apply_update(MODEL), *meeting.send(MODEL, "token")]

    def mix(self, meeting: Meeting) -> list[Effect]:
        assert isinstance(meeting.around.rounds, Places)
        row = meeting.around.rounds.row(meeting.around.node, meeting.round)
        slots = {meeting.around.node: MODEL, **{one: meeting.slot("token", one) for one in meeting.there("token")}}
        mean = {slots[one]: weight for one, weight in row.items() if one in slots}
        if len(mean) < len(row) and mean:
            total = sum(mean.values())
            mean = {slot: weight / total if total else 1.0 / len(mean) for slot, weight in mean.items()}
        return [Combine(MODEL, mean)] if mean else []
