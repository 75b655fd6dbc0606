"""Multi-Walk: R copies of the model walk over the graph and are mixed at one node (Algorithm 1).

Every visited node trains the walk on its data (line 6). The aggregator ("Node 0") also mixes it with the others:

    x_r ← u_l + (x_r − u_r) / R        (line 8)
    u_r ← x_r,  l ← r                  (lines 9, 10)

where u_r is its copy of walk r from the last visit and l the walk that visited last. Then the walk moves on by the
Metropolis–Hastings matrix P (lines 11, 12); where P keeps it in place, it trains here again and nothing is sent.
With R = 1 line 8 is the identity: a plain random walk.

This file is Algorithm 1 for a world without failures. `resilient` is the same for a world with them, with the same
models as long as none happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args
from typing import Protocol as TypingProtocol

from annotated_types import Gt

from walktalk.errors import SpecError
from walktalk.protocols.effects import AGGREGATE, INITIAL, MEMBER, Combine, Effect, Forget, Record, Send, absorb
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Protocol, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.multi_walk.aggregation import copy_slot
from walktalk.protocols.multi_walk.resilient import ResilientNode, messages_with
from walktalk.protocols.multi_walk.visits import (
    NOTHING,
    Carried,
    MetropolisHastings,
    PlainTraining,
    Stepping,
    Visiting,
    carried_in,
    forgotten,
    walk_slot,
)
from walktalk.protocols.multi_walk.walk_pass import WALK
from walktalk.protocols.self_description import InLabel, Law

GuardKind = Literal["aggregator", "decentralized", "average_crossing", "create_if_late", "none"]
COLOURS = {  # by the number of walks; of Okabe and Ito (2008) and Tol's muted set
    1: "#0072B2",  # blue
    2: "#56B4E9",  # sky
    4: "#009E73",  # green
    6: "#999933",  # olive
    8: "#332288",  # indigo
    10: "#882255",  # wine
    15: "#CC79A7",  # pink
    16: "#AA4499",  # purple
    32: "#DDCC77",  # sand
}


@dataclass(frozen=True)
class MultiWalk(Protocol):
    """R random walks, mixed at the aggregator.

    Args:
        walks: how many, R.
        aggregator: the node that mixes them.
        resilient: whether it survives failures; if left out, where there may be any.
        heartbeat: seconds between two heartbeats of the aggregator.
        guard: who notices that a walk is lost: the aggregator; every node, from how many seem to be alive
            (decentralized, after DecAFork) or from how long none came by (average_crossing, create_if_late); or nobody.
    """

    walks: Annotated[int, InLabel("-{}", always=True)] = 1
    aggregator: Annotated[int, InLabel("-at{}")] = 0
    resilient: bool | None = None
    heartbeat: Annotated[float, Gt(0), InLabel("-beat{:g}")] = 1.0
    guard: GuardKind = "aggregator"
    name: ClassVar[str] = "multi_walk"
    nodes_come_and_go: ClassVar[bool] = True
    models_travel: ClassVar[bool] = True
    family: ClassVar[str] = "walks"
    paper: ClassVar[str] = "this study's paper, Algorithm 1"
    keeps: ClassVar[str] = "R models walk; the aggregator has a copy of each from its last visit"
    sends: ClassVar[str] = "one model a hop; nothing where a walk stays at its node"
    guarantees: ClassVar[str] = (
        "every update is in the aggregate once; a constant rate leaves a rest on unlike nodes (Theorem 1)"
    )
    conserves: ClassVar[tuple[Law, ...]] = ("once",)
    means_of_models: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.heartbeat > 0:
            raise SpecError(f"heartbeat: {self.heartbeat} is not possible; a number above 0 is needed")
        if self.guard not in get_args(GuardKind):
            raise SpecError(f"guard: {self.guard!r} is unknown; allowed: {', '.join(get_args(GuardKind))}")

    @property
    def title(self) -> str:
        return "one walk" if self.walks == 1 else f"{self.walks} walks"

    @property
    def description(self) -> str:
        if self.walks == 1:
            return "One model wanders from node to node and is trained on the data of each."
        return f"{self.walks} models wander from node to node, trained on the data of each and mixed at one node."

    @property
    def colour(self) -> str | None:
        return COLOURS.get(self.walks)

    @classmethod
    def usual(cls) -> tuple[MultiWalk, ...]:
        return tuple(cls(walks) for walks in range(1, 129))

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return walk_messages(bool(self.resilient))

    def check(self, nodes: int) -> None:
        super().check(nodes)
        check_walks(self.walks, self.aggregator, nodes)

    def active_models(self, nodes: int) -> int:
        return self.walks

    def machine(self, surroundings: Surroundings) -> Machine:
        return walk_node(self, surroundings, PlainTraining(), MetropolisHastings())


def check_walks(walks: int, aggregator: int, nodes: int) -> None:
    """Raise `SpecError` where there cannot be so many, or no such aggregator."""
    if not 1 <= walks <= nodes:
        raise SpecError(f"walks: {walks} is not possible on {nodes} nodes; allowed: 1 to {nodes} (R ≤ V)")
    if not 0 <= aggregator < nodes:
        raise SpecError(f"aggregator: there is no node {aggregator}; allowed: 0 to {nodes - 1}")


class Walking(TypingProtocol):
    """What protocols of walks have in common: those settings of `MultiWalk`."""

    @property
    def walks(self) -> int: ...
    @property
    def aggregator(self) -> int: ...
    @property
    def resilient(self) -> bool | None: ...
    @property
    def heartbeat(self) -> float: ...
    @property
    def guard(self) -> GuardKind: ...


def walk_messages(resilient: bool, luggage: tuple[str, ...] = ()) -> Mapping[str, Arrival]:
    """Those of walks that carry a model, and further ones."""
    if resilient:
        return messages_with(luggage)
    return {WALK: Arrival("walk/{walk}"), **{kind: Arrival(f"{kind}/{{round}}") for kind in luggage}}


def walk_node(walking: Walking, around: Surroundings, visiting: Visiting, stepping: Stepping) -> Machine:
    """A node of a protocol of walks: what is done at a visit, and where they go then, is given."""
    if walking.resilient:
        settings = (walking.walks, walking.aggregator, walking.heartbeat, walking.guard)
        return ResilientNode(around, *settings, visiting, stepping)
    mixer = Mixer(walking.walks) if around.node == walking.aggregator else None
    return WalkNode(around, walking.walks, mixer, visiting, stepping)


class WalkNode(Machine):
    """Any node: trains the walks that come by, and sends them on; the aggregator has a mixer."""

    __slots__ = ("around", "carried", "luggage", "mixer", "parts", "stepping", "visiting", "walks")

    def __init__(
        self, surroundings: Surroundings, walks: int, mixer: Mixer | None, visiting: Visiting, stepping: Stepping
    ) -> None:
        self.around = surroundings
        self.walks = walks
        self.mixer = mixer
        self.visiting, self.stepping = visiting, stepping
        self.luggage = len(visiting.luggage)  # further models of every walk
        self.carried: dict[int, Carried] = {}  # of the walks that are here
        self.parts: dict[int, int] = {}  # walk -> models of it that have come

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received):
            return self.arrives(event.message, outside)
        if isinstance(event, Trained):
            return self.visit_ends(event, outside)
        if isinstance(event, Started):
            return [*(self.mixer.begin() if self.mixer is not None else ()), *self.start(outside)]
        return []

    def arrives(self, message: Message, outside: Outside) -> list[Effect]:
        """A walk, or part of its luggage: it is here when all have come."""
        walk = message.walk or message.round
        if message.note:
            self.carried[walk] = carried_in(message.note)
        parts = self.luggage
        if parts:
            self.parts[walk] = self.parts.get(walk, 0) + 1
            if self.parts[walk] <= parts:
                return []
            del self.parts[walk]
        return self.visit(walk, outside)

    def visit(self, walk: int, outside: Outside) -> list[Effect]:
        """It is trained, or runs on at once."""
        jumps, more = self.carried.pop(walk, NOTHING) if self.carried else NOTHING
        if jumps:
            return self.move_on(walk, jumps, more, outside)
        effects, more = self.visiting.work(walk, more, outside.random)
        if more:
            self.carried[walk] = Carried(more=more)
        return effects

    def start(self, outside: Outside) -> list[Effect]:
        """Line 1: walk r (counted from 1) starts at node r − 1."""
        me = self.around.node
        if me >= self.walks:
            return []
        walk = me + 1
        slot = walk_slot(walk)
        self.carried[walk] = Carried(more=self.visiting.first)
        return [Combine(slot, {INITIAL: 1.0}), Record(MEMBER, walk, slot), *self.visit(walk, outside)]

    def visit_ends(self, event: Trained, outside: Outside) -> list[Effect]:
        walk = event.walk
        carried = self.carried.pop(walk, NOTHING) if self.carried else NOTHING
        effects, more = self.visiting.learn(event, carried[1])  # line 6
        slot = walk_slot(walk)
        if self.mixer is not None:
            effects += self.mixer.mix(walk, slot)
        effects.append(Record(MEMBER, walk, slot))
        effects += self.move_on(walk, 0, more, outside)
        return effects

    def move_on(self, walk: int, jumps: int, more: bytes, outside: Outside) -> list[Effect]:
        """Lines 11 and 12."""
        around, slot = self.around, walk_slot(walk)
        node = around.node
        to, jumps = self.stepping.step(node, around.neighbours, around.degrees, jumps, outside.random)
        if to == node:
            if more:
                self.carried[walk] = Carried(more=more)
            return self.visit(walk, outside)
        note = Carried(jumps, more).encode() if jumps or more else b""
        model = Send(to, Message(WALK, walk, note=note), slot)
        if not self.luggage:
            return [model, Forget(slot)]
        luggage = self.visiting.luggage
        others = [Send(to, Message(kind, round=walk), walk_slot(walk, kind)) for kind in luggage]
        return [*others, model, *forgotten(walk, luggage, walk_slot)]


class Mixer:
    """What the aggregator has and others do not: a copy of every walk, and lines 2, 3 and 7 to 10."""

    __slots__ = ("latest", "walks")

    def __init__(self, walks: int) -> None:
        self.walks = walks
        self.latest = 1  # line 3: l = 1

    def begin(self) -> list[Effect]:
        copies: list[Effect] = [Combine(copy_slot(r), {INITIAL: 1.0}) for r in range(1, self.walks + 1)]  # line 2
        return [*copies, Record(AGGREGATE, 0, copy_slot(self.latest))]

    def mix(self, walk: int, slot: str) -> list[Effect]:
        mine, latest = copy_slot(walk), copy_slot(self.latest)
        self.latest = walk
        return [
            absorb(slot, latest, 1.0 / self.walks, slot, mine),  # line 8
            Combine(mine, {slot: 1.0}),  # line 9
            Record(AGGREGATE, 0, mine),
        ]
