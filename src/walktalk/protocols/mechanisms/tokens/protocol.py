"""What all algorithms of walks say of themselves, and the choice between the plain node and the resilient one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from annotated_types import Ge, Gt

from walktalk.core.errors import SpecError
from walktalk.protocols.effects import (
    AGGREGATE,
    INITIAL,
    MEMBER,
    Arrival,
    Combine,
    Effect,
    Forget,
    Message,
    Record,
    Send,
)
from walktalk.protocols.events import Event, Received, Started, Trained
from walktalk.protocols.machine import Context, Machine, NetworkView, Protocol
from walktalk.protocols.mechanisms.tokens.heartbeats import MOST_WALKS
from walktalk.protocols.mechanisms.tokens.hops import ACK, WALK
from walktalk.protocols.mechanisms.tokens.membership import BEAT
from walktalk.protocols.mechanisms.tokens.resilient import ResilientNode
from walktalk.protocols.mechanisms.tokens.rule import (
    NOTHING,
    Carried,
    WalkRule,
    carried_in,
    copy_slot,
    forgotten,
    share_of_a_walk,
    walk_slot,
)
from walktalk.protocols.self_description import InLabel

# -- Walks in a world without failures: the paper's messages and no more ----------------------------------------------
# `resilient` is the same for a world with failures, with the same models as long as none happens.


class WalkNode(Machine):
    """Trains the walks that visit a node and sends them on; the aggregator's node also mixes them."""

    __slots__ = ("around", "carried", "extras", "mixer", "parts", "rule", "walks")

    def __init__(self, around: NetworkView, walks: int, aggregator: int, rule: WalkRule) -> None:
        self.around, self.walks, self.rule = around, walks, rule
        self.mixer = Mixer(walks, rule) if around.node == aggregator else None
        self.extras = rule.extras
        self.carried: dict[int, Carried] = {}  # of the walks that are here
        self.parts: dict[int, int] = {}  # walk -> models of it that have come

    def handle(self, event: Event, context: Context) -> list[Effect]:
        if isinstance(event, Received):
            return self._arrives(event.message, context)
        if isinstance(event, Trained):
            return self._visit_ends(event, context)
        if isinstance(event, Started):
            return [*(self.mixer.begin() if self.mixer is not None else ()), *self._start(context)]
        return []

    def _start(self, context: Context) -> list[Effect]:
        """Line 1: walk r (counted from 1) starts at node r − 1."""
        walk = self.around.node + 1
        if walk > self.walks:
            return []
        slot = walk_slot(walk)
        self.carried[walk] = Carried(state=self.rule.first_state)
        return [Combine(slot, {INITIAL: 1.0}), Record(MEMBER, walk, slot), *self._visit(walk, context)]

    def _arrives(self, message: Message, context: Context) -> list[Effect]:
        """A walk or one of its extras has arrived; the visit begins when all have come."""
        walk = message.walk or message.round
        if message.note:
            self.carried[walk] = carried_in(message.note)
        if self.extras:
            self.parts[walk] = self.parts.get(walk, 0) + 1
            if self.parts[walk] <= len(self.extras):
                return []
            del self.parts[walk]
        return self._visit(walk, context)

    def _visit(self, walk: int, context: Context) -> list[Effect]:
        """The walk is trained, or runs on at once."""
        jumps, state = self.carried.pop(walk, NOTHING) if self.carried else NOTHING
        if jumps:
            return self._move_on(walk, Carried(jumps, state), context)
        effects, state = self.rule.work(walk, state, context.random)
        if state:
            self.carried[walk] = Carried(state=state)
        return effects

    def _visit_ends(self, event: Trained, context: Context) -> list[Effect]:
        walk = event.walk
        carried = self.carried.pop(walk, NOTHING) if self.carried else NOTHING
        effects, state = self.rule.learn(event, carried[1])  # line 6
        if self.mixer is not None:
            effects += self.mixer.mix(walk)  # lines 7 to 10
        effects.append(Record(MEMBER, walk, walk_slot(walk)))
        effects += self._move_on(walk, Carried(state=state) if state else NOTHING, context)
        return effects

    def _move_on(self, walk: int, carried: Carried, context: Context) -> list[Effect]:
        """Lines 11 and 12: the walk goes to a neighbour, or stays and is trained again."""
        around, slot = self.around, walk_slot(walk)
        node = around.node
        to, carried = self.rule.step(node, around.neighbours, around.degrees, carried, context.random)
        if to == node:
            if carried.state:
                self.carried[walk] = Carried(state=carried.state)
            return self._visit(walk, context)
        model = Send(to, Message(WALK, walk, note=carried.encode()), slot)
        if not self.extras:
            return [model, Forget(slot)]
        others = [Send(to, Message(kind, round=walk), walk_slot(walk, kind)) for kind in self.extras]
        return [*others, model, *forgotten(walk, self.extras, walk_slot)]


class Mixer:
    """The aggregator's copies of all walks: lines 2, 3 and 7 to 10 of Algorithm 1."""

    __slots__ = ("latest", "rule", "walks")

    def __init__(self, walks: int, rule: WalkRule) -> None:
        self.walks, self.rule = walks, rule
        self.latest = 1  # line 3: l = 1

    def begin(self) -> list[Effect]:
        """Line 2: every copy is the initial model."""
        copies: list[Effect] = [Combine(copy_slot(r), {INITIAL: 1.0}) for r in range(1, self.walks + 1)]
        return [*copies, Record(AGGREGATE, 0, copy_slot(self.latest))]

    def mix(self, walk: int) -> list[Effect]:
        """Mixes a walk that has been trained here with the walk that came before it."""
        latest, self.latest = self.latest, walk  # line 10
        mixed = self.rule.mix(walk, latest, share_of_a_walk(self.walks))
        return [*mixed, Record(AGGREGATE, 0, copy_slot(walk))]


# -- What all algorithms of walks say of themselves, and the choice between the plain node and the resilient one ------

Guard = Literal["aggregator", "decentralized", "average_crossing", "create_if_late", "none"]


@dataclass(frozen=True, kw_only=True)
class Walks(Protocol):
    """An algorithm whose models walk from node to node. It survives failures, and lets nodes come and go.

    A protocol adds `walks`, or says how many there are; `rule` says what it does.

    Args:
        aggregator: the node that mixes them.
        resilient: whether it survives failures; if left out, where there may be any.
        heartbeat: seconds between two heartbeats of the aggregator.
        guard: who notices that a walk is lost: the aggregator; every node, from how many seem to be alive
            (decentralized, after DecAFork) or from how long none came by (average_crossing, create_if_late); or nobody.
    """

    aggregator: Annotated[int, Ge(0), InLabel("-at{}")] = 0
    resilient: bool | None = None
    heartbeat: Annotated[float, Gt(0), InLabel("-beat{:g}")] = 1.0
    guard: Guard = "aggregator"
    listed_last: ClassVar[tuple[str, ...]] = ("aggregator", "resilient", "heartbeat", "guard")
    family: ClassVar[str] = "walks"
    elastic: ClassVar[bool] = True
    extras: ClassVar[tuple[str, ...]] = ()  # kinds of the further models that a walk carries

    @property
    @abstractmethod
    def walks(self) -> int:
        """How many walks there are, R."""

    @abstractmethod
    def rule(self, around: NetworkView) -> WalkRule:
        """What a node does with the walks that visit it."""

    def __post_init__(self) -> None:
        if not self.heartbeat > 0:
            raise SpecError(f"heartbeat: {self.heartbeat} is not possible; a number above 0 is needed")
        if self.guard not in get_args(Guard):
            raise SpecError(f"guard: {self.guard!r} is unknown; allowed: {', '.join(get_args(Guard))}")

    def check(self, nodes: int) -> None:
        super().check(nodes)
        if not 1 <= self.walks <= nodes:
            raise SpecError(f"walks: {self.walks} is not possible on {nodes} nodes; allowed: 1 to {nodes} (R ≤ V)")
        if not 0 <= self.aggregator < nodes:
            raise SpecError(f"aggregator: there is no node {self.aggregator}; allowed: 0 to {nodes - 1}")

    @property
    def messages(self) -> Mapping[str, Arrival]:
        if not self.resilient:
            return {WALK: Arrival("walk/{walk}"), **{kind: Arrival(f"{kind}/{{round}}") for kind in self.extras}}
        extras = {kind: Arrival(f"in/{kind}/{{round}}") for kind in self.extras}
        return {WALK: Arrival("in/{walk}", prompt=True), ACK: Arrival(), BEAT: Arrival(), **extras}

    @property
    def there_at_first(self) -> frozenset[int]:
        return frozenset((*range(self.walks), self.aggregator))

    def active_models(self, nodes: int) -> int:
        return self.walks

    def machine(self, network_view: NetworkView) -> Machine:
        rule = self.rule(network_view)
        if self.resilient:
            if self.guard == "aggregator" and self.walks > MOST_WALKS:
                raise SpecError(
                    f"walks: {self.walks:,} are more than a heartbeat can name; allowed: up to {MOST_WALKS:,}, or "
                    f"another guard ({', '.join(one for one in get_args(Guard) if one != 'aggregator')})"
                )
            return ResilientNode(network_view, self.walks, self.aggregator, self.heartbeat, self.guard, rule)
        return WalkNode(network_view, self.walks, self.aggregator, rule)
