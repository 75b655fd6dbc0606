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

from annotated_types import Gt

from walktalk.chains import metropolis_step
from walktalk.errors import SpecError
from walktalk.protocols.effects import (
    AGGREGATE,
    INITIAL,
    MEMBER,
    Combine,
    Effect,
    Forget,
    Record,
    Send,
    Train,
    absorb,
    apply_update,
)
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Machine, Outside, Protocol, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.multi_walk.aggregation import copy_slot, walk_slot
from walktalk.protocols.multi_walk.resilient import MESSAGES, ResilientNode
from walktalk.protocols.multi_walk.walk_pass import WALK
from walktalk.protocols.self_description import InLabel, Law

GuardKind = Literal["aggregator", "decentralized", "none"]
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
        guard: who notices that a walk is lost.
    """

    walks: Annotated[int, InLabel("-{}", always=True)] = 1
    aggregator: Annotated[int, InLabel("-at{}")] = 0
    resilient: bool | None = None
    heartbeat: Annotated[float, Gt(0), InLabel("-beat{:g}")] = 1.0
    guard: GuardKind = "aggregator"
    name: ClassVar[str] = "multi_walk"
    family: ClassVar[str] = "walks"
    conserves: ClassVar[tuple[Law, ...]] = ("once",)

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
        return MESSAGES if self.resilient else {WALK: Arrival("walk/{walk}")}

    def check(self, nodes: int) -> None:
        super().check(nodes)
        if not 1 <= self.walks <= nodes:
            raise SpecError(f"walks: {self.walks} is not possible on {nodes} nodes; allowed: 1 to {nodes} (R ≤ V)")
        if not 0 <= self.aggregator < nodes:
            raise SpecError(f"aggregator: there is no node {self.aggregator}; allowed: 0 to {nodes - 1}")

    def active_models(self, nodes: int) -> int:
        return self.walks

    def machine(self, surroundings: Surroundings) -> Machine:
        if self.resilient:
            return ResilientNode(surroundings, self.walks, self.aggregator, self.heartbeat, self.guard)
        return WalkNode(surroundings, self.walks, Mixer(self.walks) if surroundings.node == self.aggregator else None)


class WalkNode(Machine):
    """Any node: trains the walks that come by, and sends them on; the aggregator has a mixer."""

    __slots__ = ("around", "mixer", "walks")

    def __init__(self, surroundings: Surroundings, walks: int, mixer: Mixer | None) -> None:
        self.around = surroundings
        self.walks = walks
        self.mixer = mixer

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        if isinstance(event, Received):
            return [Train(event.slot, event.message.walk)]
        if isinstance(event, Trained):
            return self.visit_ends(event.slot, event.walk, outside)
        if isinstance(event, Started):
            return [*(self.mixer.begin() if self.mixer is not None else ()), *self.start()]
        return []

    def start(self) -> list[Effect]:
        """Line 1: walk r (counted from 1) starts at node r − 1."""
        me = self.around.node
        if me >= self.walks:
            return []
        walk = me + 1
        slot = walk_slot(walk)
        return [Combine(slot, {INITIAL: 1.0}), Record(MEMBER, walk, slot), Train(slot, walk)]

    def visit_ends(self, slot: str, walk: int, outside: Outside) -> list[Effect]:
        effects: list[Effect] = [apply_update(slot)]  # line 6
        if self.mixer is not None:
            effects += self.mixer.mix(walk, slot)
        effects.append(Record(MEMBER, walk, slot))
        around = self.around
        to = metropolis_step(around.node, len(around.neighbours), around.neighbours, around.degrees, outside.random)
        if to == around.node:
            effects.append(Train(slot, walk))
        else:
            effects += (Send(to, Message(WALK, walk=walk), slot), Forget(slot))
        return effects


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
