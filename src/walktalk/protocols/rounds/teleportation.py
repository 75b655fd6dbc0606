"""Teleportation (Takezawa and Stich 2025): a few models, at other nodes in every round, gossip on a small graph.

    a(t): the k nodes that have the models in round t, drawn anew in every round, all different
    x_r½ = x_r − η g_a(x_r),  a = a_r(t),    x_r ← Σ_s W_rs x_s½,   r, s = 1 … k, at node a_r(t+1)

W is that of a graph of k, however many nodes there are, so models agree as fast as k nodes would, and everybody's data
count. A node sends what it trained to those that have the neighbours of its model next, and they average: the same as
averaging first and sending the mean on. With k = V it is D-PSGD in the order train, then mix, of models that change
their places; with k = 1 one model at one random node after the other. All draw from one seed, so that a node knows when
its turn is, and whom to wait for. It knows no failures. (Written from the paper's abstract and from memory of it.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.errors import GraphError, SpecError
from walktalk.graphs import Graph, build
from walktalk.protocols.demands import BALANCED, COMPLETE, Demand
from walktalk.protocols.effects import INITIAL, MEMBER, UPDATE, Combine, Effect, Forget, Record, Send, Train
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Protocol, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.rounds.meeting import HALF, MODEL, arrivals
from walktalk.protocols.weights import row_of
from walktalk.seeds import Seed

TOKEN = "token"  # kind of a message: a trained model for one of those that average it
MESSAGES = arrivals(TOKEN)


@dataclass(frozen=True)
class Teleportation(Protocol):
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
    family: ClassVar[str] = "gossip"
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
    colour: ClassVar[str] = "#3F8A8C"
    demands: ClassVar[tuple[Demand, ...]] = (COMPLETE,)
    made_for: ClassVar[str] = "complete"
    instead: ClassVar[str] = "epidemic_learning or multi_walk"  # its models are nowhere else
    models_travel: ClassVar[bool] = True

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return MESSAGES

    def check(self, nodes: int) -> None:
        super().check(nodes)
        if self.active > nodes > 1:
            raise SpecError(f"active: {self.active} is not possible with {nodes} nodes; {nodes} or fewer are needed")
        BALANCED.check(self.graph(nodes), self.label)

    def active_models(self, nodes: int) -> int:
        return min(self.active, nodes)

    def graph(self, nodes: int) -> Graph:
        """That of the models."""
        try:
            return build(self.topology, self.active_models(nodes), seed=Seed(self.seed).child("topology"))
        except GraphError as error:
            raise SpecError(f"topology: {error}") from error

    def machine(self, surroundings: Surroundings) -> Machine:
        places = Places(surroundings.nodes, self.active_models(surroundings.nodes), Seed(self.seed))
        return TeleportNode(surroundings.node, places, Tokens(self.graph(surroundings.nodes)), self.steps)


@dataclass(frozen=True)
class Places:
    """Which node has which model when."""

    nodes: int
    tokens: int
    seed: Seed

    def holders(self, round_: int) -> tuple[int, ...]:
        """The node of every model in a round."""
        return _drawn(self.nodes, self.tokens, self.seed, round_)

    def turn_after(self, node: int, round_: int) -> int:
        """The next round in which a node has a model."""
        round_ += 1
        while node not in self.holders(round_):
            round_ += 1
        return round_


@lru_cache(maxsize=4096)
def _drawn(nodes: int, tokens: int, seed: Seed, round_: int) -> tuple[int, ...]:
    return tuple(seed.child("teleportation", round_).python().sample(range(nodes), tokens))


class Tokens:
    """The graph of the models: by whom each is averaged, and with what weights."""

    __slots__ = ("around",)

    def __init__(self, graph: Graph) -> None:
        self.around = []
        for token in range(graph.nodes):
            neighbours = graph.neighbours(token)
            degrees = tuple(len(graph.neighbours(other)) for other in neighbours)
            heard = graph.reverse.neighbours(token) if graph.directed else None
            self.around.append(Surroundings(token, graph.nodes, neighbours, degrees, heard=heard, rounds=graph.rounds))

    def receivers(self, token: int, round_: int) -> list[int]:
        """Those that average what this one was trained to in a round, itself first."""
        return [token, *self.around[token].meets(round_)[0]]

    def row(self, token: int, round_: int) -> dict[int, float]:
        """The row of W."""
        others = row_of(self.around[token], round_)
        return {token: 1.0 - sum(others.values()), **others}


class TeleportNode(Machine):
    """One node. It takes its turns in order; what comes for a later one waits."""

    __slots__ = ("came", "node", "places", "steps", "tokens", "trains", "turn")

    def __init__(self, node: int, places: Places, tokens: Tokens, steps: int) -> None:
        self.node, self.places, self.tokens, self.steps = node, places, tokens, steps
        self.turn, self.trains = places.turn_after(node, -1), False
        self.came: dict[int, set[int]] = {}  # round -> from whom something for it is here

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received):
            self._take(event.sender, event.message.round)
            return self._go_on()
        if isinstance(event, Trained):
            return [*self._hand_on(), *self._go_on()]
        if isinstance(event, Started):
            begin = Combine(MODEL, {INITIAL: 1.0})
            return [begin, *self._begin()] if self.turn == 0 else [begin]
        return []

    def _token(self, round_: int) -> int:
        """The model that this node has in a round."""
        return self.places.holders(round_).index(self.node)

    def _sources(self, round_: int) -> dict[int, float]:
        """From whom what is averaged for a round comes, and with what weight."""
        before = self.places.holders(round_ - 1)
        return {before[token]: weight for token, weight in self.tokens.row(self._token(round_), round_ - 1).items()}

    def _take(self, sender: int, round_: int) -> None:
        expected = round_ >= max(self.turn, 1) and self.node in self.places.holders(round_)
        if not expected or sender not in self._sources(round_):
            raise ValueError(f"{sender} does not meet this node in round {round_}")
        self.came.setdefault(round_, set()).add(sender)

    def _go_on(self) -> list[Effect]:
        """If all that its next turn needs is here: average, and train."""
        if self.trains or self.turn == 0:
            return []
        sources = self._sources(self.turn)
        if len(self.came.get(self.turn, ())) < len(sources):
            return []
        del self.came[self.turn]
        row = {_slot(self.turn, sender): weight for sender, weight in sources.items()}
        return [Combine(MODEL, row), *(Forget(slot) for slot in row), *self._begin()]

    def _begin(self) -> list[Effect]:
        self.trains = True
        return [Record(MEMBER, self._token(self.turn), MODEL), Train(MODEL, steps=self.steps)]

    def _hand_on(self) -> list[Effect]:
        """What was trained goes to all that average it, perhaps to this node itself."""
        effects: list[Effect] = [Combine(HALF, {MODEL: 1.0, UPDATE: 1.0}, {UPDATE: 1.0})]
        after, holders = self.turn + 1, self.places.holders(self.turn + 1)
        for token in self.tokens.receivers(self._token(self.turn), self.turn):
            to = holders[token]
            if to == self.node:
                self.came.setdefault(after, set()).add(to)
                effects.append(Combine(_slot(after, to), {HALF: 1.0}))
            else:
                effects.append(Send(to, Message(TOKEN, round=after), HALF))
        self.turn, self.trains = self.places.turn_after(self.node, self.turn), False
        return effects


def _slot(round_: int, sender: int) -> str:
    """Where what a node sent for a round is."""
    return f"{TOKEN}/{round_}/{sender}"
