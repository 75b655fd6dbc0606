"""A server in rounds: it sends its model to all others, everybody trains from it, and it gathers what they learned.

The server is one node, in the middle of a star or at the root of a tree; it has data, and trains as all others do. A
star is a tree in which everybody is a child of the server. On a deeper one a node hands what comes from its parent to
its children and trains; when its children's results are there it sends its parent one mean of all that is below it and
its own, with how much that counts for: a model down and one up along every link and round, whatever the tree. What is
sent, and what the server makes of it, an algorithm says in a `ServerRule`.

Plain, everybody waits for everybody. Resilient, a node sends what it has to those that are not known to be lost, and
waits for their results; not for those that die, that say that something did not come whole (`ABSENT`), whose result is
known to be lost, or that take longer than others ever did (`attendance`). Who was left out for being late is sent the
model of every round all the same. A node that gets the next model in the middle of a training drops what it has, and
goes on with the new one. On a tree, those behind a dead node wait until it is back. Who joins is sent the model of the
next round; who leaves for good finishes the training that it has begun, and is given no more.

The server itself cannot be replaced: while it is dead nothing goes on, and when it is back it begins a new round. It
can neither join late nor leave for good.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt

from walktalk.protocols.effects import (
    AGGREGATE,
    INITIAL,
    MEMBER,
    UPDATE,
    Arrival,
    Combine,
    Effect,
    Forget,
    Message,
    Record,
    Send,
    Train,
)
from walktalk.protocols.events import (
    Event,
    Leaving,
    NetworkChanged,
    PeerFound,
    PeerLost,
    Received,
    Rejoined,
    Started,
    TimerFired,
    Trained,
)
from walktalk.protocols.machine import Context, Machine, NetworkView, Protocol
from walktalk.protocols.mechanisms.attendance import Cohort
from walktalk.protocols.self_description import Demand, InLabel, server_at, tree_with

MODEL = "model"  # the slot of the server's model x, and at other nodes of the one that they train from
CHANGE = "change"  # what a node's training changed
ABSENT = "absent"  # kind of a message: what this round needs did not come whole, so do not wait
ABSENCE = {ABSENT: Arrival()}
NOBODY = -1
NEW_LIFE = 2**16  # by how much the numbers of one that comes back are higher than any that it may have used


@dataclass(frozen=True)
class ServerProtocol(Protocol):
    """A protocol with a server.

    Args:
        steps: local steps K of a training; 0: as many as the study says.
        server: the node that is the server; it needs a link with every other, unless it is the root of a tree.
        resilient: whether it survives failures of others than the server for good; if left out, where there may be any.
        patience: seconds to wait for others at first; after that it is known how long they take.
    """

    steps: Annotated[int, Ge(0)] = 0
    server: Annotated[int, Ge(0)] = 0
    resilient: bool | None = field(default=None, kw_only=True)
    patience: Annotated[float, Gt(0), InLabel("")] = field(default=10.0, kw_only=True)
    elastic: ClassVar[bool] = True
    family: ClassVar[str] = "server"
    made_for: ClassVar[str] = "star"

    @property
    def demands(self) -> tuple[Demand, ...]:
        return server_at(self.server)

    @property
    def meets_newcomers(self) -> tuple[int, ...]:
        return (self.server,)

    def irreplaceable(self, node: int) -> str:
        return "it is the server, which no other node can replace" if node == self.server else ""


@dataclass(frozen=True)
class TreeServerProtocol(ServerProtocol):
    """A protocol whose server may also be the root of a tree.

    Args:
        tree: whether the graph is a tree with the server as its root, along which models are handed on; if not, the
            server needs a link with every other node. Nodes behind a dead one
            wait until it is back.
    """

    tree: bool = field(default=False, kw_only=True)

    @property
    def demands(self) -> tuple[Demand, ...]:
        return tree_with(self.server) if self.tree else super().demands

    @property
    def made_for(self) -> str:  # type: ignore[override]
        return "binary_tree" if self.tree else "star"


@dataclass(frozen=True)
class ServerRounds(TreeServerProtocol):
    """A protocol with a server, in rounds, that goes by a `ServerRule`."""

    @abstractmethod
    def rule(self) -> ServerRule:
        """What a node does in a round; one rule for each node."""

    @property
    def messages(self) -> Mapping[str, Arrival]:
        rule = self.rule()
        kinds = [*(f"{slot}_down" for slot in rule.down), *(f"{slot}_up" for slot in rule.up)]
        models = {kind: Arrival(f"{kind}/{{sender}}") for kind in kinds}
        return {**models, **ABSENCE} if self.resilient else models

    def machine(self, network_view: NetworkView) -> Machine:
        cohort = Cohort(self.patience if self.resilient else None)
        return NodeInRounds(network_view, self.rule(), cohort, self.server, self.tree)


class ServerRule(ABC):
    """What an algorithm does in a round: what goes down and up, and what the server makes of what has come up.

    Args:
        train: what every node does in a round, once all that goes down is there.
        weighted: whether a node's result of the first slot counts by how much data it has; if not, all count alike.
    """

    __slots__ = ("train", "weighted")

    down: ClassVar[tuple[str, ...]] = (MODEL,)  # slots that the server sends out, `MODEL` first
    up: ClassVar[tuple[str, ...]] = (CHANGE,)  # slots that everybody sends back

    def __init__(self, train: Train, weighted: bool = False) -> None:
        self.train, self.weighted = train, weighted

    def chosen(self, round_: int, there: Sequence[int]) -> Sequence[int]:
        """Who takes part in a round, as the server says; not on a tree.

        - `there`: the server, and those that are not known to be lost; one of them at least takes part.
        """
        return there

    def begin(self) -> list[Effect]:
        """What every node does before its first round."""
        return []

    def prepare(self) -> list[Effect]:
        """What every node does before each training."""
        return []

    def learn(self, event: Trained) -> list[Effect]:
        """Sets, at every node after its training, the slots that go up."""
        return [Combine(CHANGE, {UPDATE: 1.0})]

    @abstractmethod
    def gather(self, came: Mapping[str, Mapping[str, float]]) -> list[Effect]:
        """Brings, at the server, what goes down up to date.

        - `came`: for each slot that goes up the slots with what came of it, and their weights. Those of the first slot
          sum to one; those of others are 1/V each, whoever is missing.
        """


class NodeInRounds(Machine):
    """The server, or a node below it.

    Args:
        around: what it knows of the network.
        rule: what is done in a round.
        cohort: whom it waits for.
        server: the node that is the server.
        tree: whether it hands on what comes, along a tree; if not, all but the server hear the server alone.
    """

    __slots__ = (
        "around", "arrived", "cohort", "counts", "leaving", "parent", "round", "rule", "server", "sits_out", "trained",
        "training", "tree",
    )  # fmt: skip

    def __init__(self, around: NetworkView, rule: ServerRule, cohort: Cohort, server: int, tree: bool) -> None:
        self.around, self.rule, self.cohort, self.server, self.tree = around, rule, cohort, server, tree
        self.parent = NOBODY if tree or self.is_server else server  # on a tree, who something comes from first
        self.round = 0 if self.is_server else -1  # the round that it is in, or was in last
        self.training, self.trained = False, False  # trained: and waiting for those below
        self.sits_out = False  # whether it waits in this round for others alone
        self.leaving = False
        self.arrived: dict[str, int] = {}  # slot -> the round of which it came from the parent last
        self.counts = {around.node: (around.samples, 1)}  # node -> samples and nodes that its results stand for

    @property
    def is_server(self) -> bool:
        """Whether this node is the server."""
        return self.around.node == self.server

    @property
    def children(self) -> tuple[int, ...]:
        """Those below this node."""
        below = self.around.neighbours if self.tree or self.is_server else ()
        return tuple(peer for peer in below if peer != self.parent)

    def handle(self, event: Event, context: Context) -> list[Effect]:
        now = context.now
        match event:
            case Received(message=message) if message.kind.endswith("_down"):
                return self._from_above(event, now)
            case Received():
                return [*self._from_below(event), *self._gather(now)]
            case Trained():
                return self._trained(event, now)
            case TimerFired():
                late = self.cohort.too_late(self.round, len(self.rule.up)) if self.trained else []
                return [*late, *self._gather(now)]
            case PeerLost(peer):
                self.cohort.attendance.lost(peer)
                return self._gather(now)
            case PeerFound(peer):
                self.cohort.found(peer)
            case NetworkChanged(around):
                self.cohort.change(self.around.neighbours, around.neighbours)
                self.around = around
                return self._gather(now)
            case Leaving():
                self.leaving = True
            case Started(late=True) if not self.is_server:
                return self.rule.begin()
            case Started():
                begin: list[Effect] = [Combine(MODEL, {INITIAL: 1.0}), *self.rule.begin()]
                return [*begin, *self._begin_round(now)] if self.is_server else begin
            case Rejoined(memory) if self.is_server:
                self.round = int.from_bytes(memory, "little") + NEW_LIFE
                return self._begin_round(now)
        return []

    def keepsake(self) -> bytes:
        return self.round.to_bytes(8, "little", signed=True)

    def may_go(self) -> bool:
        """When it has sent what it learned."""
        return not (self.training or self.trained)

    def missed(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """Who sent something down need not wait for this node; nor does this node for a lost result."""
        if not self.cohort.survives:
            return []
        if message.kind.endswith("_down"):
            return [Send(sender, Message(ABSENT, round=message.round))]
        self.cohort.has_none(sender, message.round)
        return self._gather(context.now)

    def refused(self, sender: int, message: Message, context: Context) -> list[Effect]:
        """What is no model is as good as lost."""
        return self.missed(sender, message, context)

    # -- down --------------------------------------------------------------------------------------------------------

    def _begin_round(self, now: float) -> list[Effect]:
        return [Record(AGGREGATE, 0, MODEL), *self._hand_down(now)]

    def _hand_down(self, now: float) -> list[Effect]:
        """Send what goes down on to those below, and train on it."""
        node, cut = self.around.node, self.cohort.attendance.cut
        staying: Sequence[int] = [peer for peer in self.children if peer not in self.around.leaving]
        if self.is_server and not self.tree:
            chosen = self.rule.chosen(self.round, [node, *(peer for peer in staying if peer not in cut)])
            self.sits_out = node not in chosen
            staying = [peer for peer in staying if peer in chosen or peer in cut]
        there = self.cohort.ask(self.round, staying)
        said = [(slot, Message(f"{slot}_down", round=self.round)) for slot in self.rule.down]
        sends = [Send(to, message, slot) for to in there for slot, message in said]
        begins: list[Effect] = [*sends, Record(MEMBER, node, MODEL)]
        self.training, self.trained = not self.sits_out, self.sits_out
        if self.sits_out:  # where all that were chosen are late since long, the round is over at once
            return [*begins, *self.cohort.wait(now), *self._gather(now)]
        return [*begins, *self.rule.prepare(), self.rule.train]

    def _from_above(self, event: Received, now: float) -> list[Effect]:
        peer, message = event.sender, event.message
        slot = message.kind.removesuffix("_down")
        if slot not in self.rule.down or not (self.tree or peer == self.parent):
            raise ValueError(f"{peer} sends {message.kind!r} to this node")
        if not self._is_parent(peer) or self.leaving:
            if not self.cohort.survives:
                raise ValueError(f"{peer} sends {message.kind!r} of round {message.round} to one that is not below it")
            return [Forget(event.slot), Send(peer, Message(ABSENT, round=message.round))]
        self.arrived[slot] = message.round
        return self._follow(now)

    def _is_parent(self, peer: int) -> bool:
        """Whether a node hands down to this one. The first that does; another only where that one is lost or leaves."""
        gone = self.parent not in self.around.neighbours or self.parent in self.around.leaving
        if not self.is_server and peer != self.parent and (gone or self.parent in self.cohort.attendance.cut):
            self.parent = peer
            self.arrived.clear()
        return peer == self.parent

    def _follow(self, now: float) -> list[Effect]:
        """Once all of another round is here, and a training under way is over, go on with that."""
        rounds = {self.arrived.get(slot, -1) for slot in self.rule.down}
        if self.training or self.leaving or len(rounds) > 1 or self.round in rounds:
            return []
        forget = self._close(now) if self.trained else []
        (self.round,) = rounds
        came = {slot: f"{slot}_down/{self.parent}" for slot in self.rule.down}
        copy: list[Effect] = [Combine(slot, {of: 1.0}) for slot, of in came.items()]
        return [*copy, *(Forget(of) for of in came.values()), *forget, *self._hand_down(now)]

    # -- up ----------------------------------------------------------------------------------------------------------

    def _trained(self, event: Trained, now: float) -> list[Effect]:
        self.training = False
        if any(number != self.round for number in self.arrived.values()):  # the server has gone on
            return [*self._close(now), *self._follow(now)]
        self.trained = True
        wait = self.cohort.wait(now) if self.children else []
        return [*self.rule.learn(event), *wait, *self._gather(now)]

    def _from_below(self, event: Received) -> list[Effect]:
        peer, message = event.sender, event.message
        slot = message.kind.removesuffix("_up")
        if peer not in self.children or (message.kind != ABSENT and slot not in self.rule.up):
            raise ValueError(f"{peer} sends {message.kind!r} to this node")
        self.cohort.attendance.speaks(peer)
        if message.kind == ABSENT:
            self.cohort.has_none(peer, message.round)
            return []
        if message.round != self.round or not (self.training or self.trained):
            if event.slot in self.cohort.came.get(self.round, {}).get(peer, ()):  # it would take the place of that one
                raise ValueError(f"{peer} sends its result of round {message.round} after that of round {self.round}")
            return [Forget(event.slot)]
        self.counts[peer] = self._counted(message.note)
        self.cohort.come(self.round, peer, event.slot)
        return []

    def _gather(self, now: float) -> list[Effect]:
        """Once this node has trained and everybody's is here: bring the model up to date, or send one mean up."""
        wanted = len(self.rule.up)
        if not self.trained or self.cohort.missing(self.round, wanted):
            return []
        whole = self.cohort.whole(self.round, wanted)
        weights = {slot: self._weights(slot, whole) for slot in self.rule.up}
        means: list[Effect] = []
        if self.tree:
            means = [Combine(slot, terms) for slot, terms in weights.items()]
            weights = {slot: {slot: 1.0} for slot in self.rule.up}
        note = self._note(whole)
        forget = self._close(now)
        if self.is_server:
            self.round += 1
            return [*means, *self.rule.gather(weights), *forget, *self._begin_round(now)]
        said = {slot: Message(f"{slot}_up", round=self.round, note=note) for slot in self.rule.up}
        return [*means, *(Send(self.parent, message, slot) for slot, message in said.items()), *forget]

    def _close(self, now: float) -> list[Effect]:
        """The round that it is in is over for this node."""
        self.trained = False
        return [Forget(slot) for slot in self.cohort.close(self.round, now)]

    def _weights(self, slot: str, whole: list[int]) -> dict[str, float]:
        """How much this node's own result counts, and each of those that came: by nodes, or by how much data they have.

        Whose objective an algorithm aims at is decided here, and nowhere else.
        """
        node, is_first = self.around.node, slot == self.rule.up[0]
        by_data = self.rule.weighted and is_first
        own = [*whole] if self.sits_out else [node, *whole]
        if by_data and not self.tree:  # in the order in which they were heard of first: sums of floats depend on it
            own = [peer for peer in self.counts if peer in own]
        counts = {peer: self.counts[peer][0 if by_data else 1] for peer in own}
        total = sum(counts.values()) if is_first or not self.is_server else self.around.nodes
        return {slot if peer == node else f"{slot}_up/{peer}": count / total for peer, count in counts.items()}

    def _note(self, whole: list[int]) -> bytes:
        """How many samples, and on a tree how many nodes, a result is of."""
        own = [self.counts[peer] for peer in (self.around.node, *whole)]
        samples, nodes = (sum(count[place] for count in own) for place in (0, 1))
        return struct.pack("<QI", samples, nodes) if self.tree else struct.pack("<I", samples)

    def _counted(self, note: bytes) -> tuple[int, int]:
        """The samples and nodes that a note says; `ValueError` where it says nothing of the kind."""
        try:
            samples, nodes = struct.unpack("<QI", note) if self.tree else (*struct.unpack("<I", note), 1)
        except struct.error as error:
            raise ValueError(f"no counts: {error}") from error
        known = max(self.around.nodes, self.around.first) + len(self.around.joined)
        if not 0 < nodes < max(known, 2):
            raise ValueError(f"a mean of {nodes} of {known} nodes")
        return samples, nodes
