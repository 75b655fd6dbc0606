"""One node of Teleportation in a world without failures: where models are in a round, and who averages which.

`resilient_teleportation` is the node in a world with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols.effects import INITIAL, MEMBER, UPDATE, Combine, Effect, Forget, Message, Record, Send, Train
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Context, Machine, NetworkView, row_of
from walktalk.protocols.mechanisms.meeting import HALF, MODEL

TOKEN = "token"  # kind of a message: a trained model for one of those that average it


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
            self.around.append(NetworkView(token, graph.nodes, neighbours, degrees, heard=heard, rounds=graph.rounds))

    def receivers(self, token: int, round_: int) -> list[int]:
        """Those that average what this one was trained to in a round, itself first."""
        return [token, *self.around[token].meets(round_)[0]]

    def row(self, token: int, round_: int) -> dict[int, float]:
        """The row of W."""
        others = row_of(self.around[token], round_)
        return {token: 1.0 - sum(others.values()), **others}


class TeleportNode(Machine):
    """One node. It takes its turns in order; what comes for a later one waits."""

    __slots__ = ("came", "cut", "node", "places", "steps", "tokens", "trains", "turn")

    def __init__(self, node: int, places: Places, tokens: Tokens, steps: int) -> None:
        self.node, self.places, self.tokens, self.steps = node, places, tokens, steps
        self.turn, self.trains = places.turn_after(node, -1), False
        self.came: dict[int, set[int]] = {}  # round -> from whom something for it is here
        self.cut: set[int] = set()  # nodes that are lost: nothing is sent to them

    def handle(self, event: Event, context: Context) -> list[Effect]:
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
        """Nodes from whom what is averaged for a round comes, and with what weight."""
        before = self.places.holders(round_ - 1)
        return {before[token]: weight for token, weight in self.tokens.row(self._token(round_), round_ - 1).items()}

    def _receivers(self, round_: int) -> list[int]:
        """To whom what this node trained in a round goes, perhaps to itself."""
        after = self.places.holders(round_ + 1)
        return [after[token] for token in self.tokens.receivers(self._token(round_), round_)]

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
        row = {token_slot(self.turn, sender): weight for sender, weight in sources.items()}
        return [Combine(MODEL, row), *(Forget(slot) for slot in row), *self._begin()]

    def _begin(self) -> list[Effect]:
        self.trains = True
        return [Record(MEMBER, self._token(self.turn), MODEL), Train(MODEL, steps=self.steps)]

    def _hand_on(self) -> list[Effect]:
        """What was trained goes to all that average it, perhaps to this node itself."""
        effects: list[Effect] = [Combine(HALF, {MODEL: 1.0, UPDATE: 1.0}, {UPDATE: 1.0})]
        after = self.turn + 1
        for to in self._receivers(self.turn):
            if to == self.node:
                self.came.setdefault(after, set()).add(to)
                effects.append(Combine(token_slot(after, to), {HALF: 1.0}))
            elif to not in self.cut:
                effects.append(Send(to, Message(TOKEN, round=after), HALF))
        self.turn, self.trains = self.places.turn_after(self.node, self.turn), False
        return effects


def token_slot(round_: int, sender: int) -> str:
    """Where what a node sent for a round is."""
    return f"{TOKEN}/{round_}/{sender}"
