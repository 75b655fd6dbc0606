"""Rounds along a ring: everybody's changes are summed up without a server, in parts that go round.

The model is cut into P parts, of which part k has every P-th parameter from the k-th on (Patarasuk, Yuan 2009). The
sum of part k begins at node k mod V; every node adds its own and hands it on (`reduce`). The last one has the sum,
which goes round once more (`gather`). So all links of the ring are in use at once, and a node sends 2 (V − 1) / V of a
model in a round, however many nodes there are; a server sends and takes V − 1 of them. With P a multiple of V no node
sends more than another.

A part is handed on as soon as it is here and the node's own training is over; parts of the next round that come early
wait. What becomes of the sum an algorithm says in a `RingRule`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.effects import (
    INITIAL,
    MEMBER,
    UPDATE,
    Arrival,
    Combine,
    Decode,
    Effect,
    Encode,
    Forget,
    Message,
    Record,
    Send,
    Train,
    cut_out,
)
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Context, Machine, NetworkView, Protocol
from walktalk.protocols.self_description import FIXED, Demand

MODEL, CHANGE, MEAN = "model", "change", "mean"
PACKED = "packed"  # a part in code
A_RING = Demand(
    "links of every node with the next by number, and of the last with the first",
    lambda graph: all((v + 1) % graph.nodes in (v, *graph.neighbours(v)) for v in range(graph.nodes)),
    "network: {graph} has no links 0-1-2-…-0, along which {label} hands sums; take cycle or complete",
)


def codec_of(part: int, parts: int) -> str:
    """What cuts a part out."""
    return f"part({part}, {parts})"


@dataclass(frozen=True)
class RingRounds(Protocol):
    """A protocol in rounds along a ring, that goes by a `RingRule`.

    Args:
        steps: local steps H of a training; 0: as many as the study says.
        parts: how many parts of the model go round, P; best a multiple of the number of nodes.
    """

    steps: Annotated[int, Ge(0)] = 0
    parts: Annotated[int, Ge(1)] = 8
    family: ClassVar[str] = "gossip"
    made_for: ClassVar[str] = "cycle"
    why_failures_end_it: ClassVar[str] = "a sum that goes round a ring ends where a node does not hand it on"
    why_nodes_stay: ClassVar[str] = "sums go round all nodes in order, and who joins or leaves would open the ring"
    demands: ClassVar[tuple[Demand, ...]] = (FIXED, A_RING)

    @abstractmethod
    def rule(self) -> RingRule:
        """What becomes of the mean change; one rule for each node."""

    @property
    def messages(self) -> Mapping[str, Arrival]:
        kinds = [(way, k) for k in range(self.parts) for way in ("reduce", "gather")]
        return {f"{way}_{k}": Arrival(f"{way}_{k}/{{round}}", codec=codec_of(k, self.parts)) for way, k in kinds}

    def machine(self, network_view: NetworkView) -> Machine:
        return NodeOfRing(network_view, self.rule(), self.steps, self.parts)


class RingRule(ABC):
    """What an algorithm makes of everybody's mean change, the same at every node."""

    __slots__ = ()

    @abstractmethod
    def step(self) -> list[Effect]:
        """Bring `MODEL` up to date with the slot `MEAN`; running statistics become those of `MEAN`."""


class NodeOfRing(Machine):
    """A node of the ring.

    Args:
        around: what it knows of the network.
        rule: what becomes of the mean change.
        steps: of a training.
        parts: how many go round.
    """

    __slots__ = ("around", "early", "following", "full", "parts", "round", "rule", "train", "trained")

    def __init__(self, around: NetworkView, rule: RingRule, steps: int, parts: int) -> None:
        self.around, self.rule, self.parts = around, rule, parts
        self.train = Train(MODEL, steps=steps)
        self.following = (around.node + 1) % around.nodes
        self.round, self.trained = 0, False
        self.full: set[int] = set()  # parts whose sum is here
        self.early: list[Received] = []  # what has come before this node was ready for it

    def handle(self, event: Event, context: Context) -> list[Effect]:
        match event:
            case Started():
                return [Combine(MODEL, {INITIAL: 1.0}), self._record(), self.train]
            case Trained():
                self.trained = True
                return [Combine(CHANGE, {UPDATE: 1.0}), *self._begin(), *self._go_on()]
            case Received():
                self._check(event)
                self.early.append(event)
                return self._go_on()
        return []

    def _record(self) -> Effect:
        return Record(MEMBER, self.around.node, MODEL)

    def _check(self, event: Received) -> None:
        """Only the node before says anything, and it can be one round ahead at most."""
        before = (self.around.node - 1) % self.around.nodes
        if event.sender != before or not self.round <= event.message.round <= self.round + 1:
            raise ValueError(f"{event.sender} sends {event.message.kind!r} of round {event.message.round}")

    def _begin(self) -> list[Effect]:
        """Hand on the parts whose sums begin here; alone, a node has them all."""
        mine = [k for k in range(self.parts) if k % self.around.nodes == self.around.node]
        if self.around.nodes > 1:
            return [effect for k in mine for effect in self._hand_on(CHANGE, "reduce", k)]
        self.full.update(mine)
        return [effect for k in mine for effect in cut_out(CHANGE, self._sum(k), codec_of(k, self.parts))]

    def _go_on(self) -> list[Effect]:
        """Take what has come, as far as this node is ready for it, and close the round when all sums are here."""
        effects: list[Effect] = []
        while self.trained:
            ready = [event for event in self.early if event.message.round == self.round]
            if not ready and len(self.full) < self.parts:
                break
            self.early = [event for event in self.early if event.message.round != self.round]
            effects += [effect for event in ready for effect in self._take(event)]
            effects += self._close() if len(self.full) == self.parts else []
        return effects

    def _take(self, event: Received) -> list[Effect]:
        """Add this node's part to a sum, or keep a sum that is whole; and hand it on."""
        way, _, number = event.message.kind.partition("_")
        k = int(number)
        begins = k % self.around.nodes  # where the sum of this part began; the node before has the whole of it first
        whole = way == "gather" or self.following == begins
        if k in self.full or (way == "reduce" and begins == self.around.node):
            raise ValueError(f"{event.sender} sends {event.message.kind!r} again")
        came = "came"
        effects: list[Effect] = [Decode(event.slot, came), Forget(event.slot)]
        if way == "reduce":
            own = cut_out(CHANGE, "own", codec_of(k, self.parts))
            effects += [*own, Combine(came, {came: 1.0, "own": 1.0}), Forget("own")]
        if whole:
            self.full.add(k)
            effects.append(Combine(self._sum(k), {came: 1.0}))
        last = way == "gather" and (self.following + 1) % self.around.nodes == begins  # who had it first
        if not last:
            effects += self._hand_on(came, "gather" if whole else "reduce", k)
        return [*effects, Forget(came)]

    def _hand_on(self, slot: str, way: str, k: int) -> list[Effect]:
        message = Message(f"{way}_{k}", round=self.round)
        return [Encode(slot, PACKED, codec_of(k, self.parts)), Send(self.following, message, PACKED), Forget(PACKED)]

    def _close(self) -> list[Effect]:
        """All sums are here: the mean change, what the algorithm makes of it, and the next training."""
        sums = [self._sum(k) for k in range(self.parts)]
        self.round, self.trained, self.full = self.round + 1, False, set()
        share = 1.0 / self.around.nodes
        # Statistics go with every part, whole.
        mean = Combine(MEAN, dict.fromkeys(sums, share), dict.fromkeys(sums, share / self.parts))
        return [mean, *map(Forget, sums), *self.rule.step(), self._record(), self.train]

    @staticmethod
    def _sum(k: int) -> str:
        return f"sum/{k}"
