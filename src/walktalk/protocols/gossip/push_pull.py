"""B-ary Tree Push-Pull (You and Pu 2024): parameters go down a tree, gradients go up it.

    x_i ← x_p − (η/n) y_p    (p: the parent of i; the root is its own)
    y_i ← Σ_j y_j + g_i(new x_i) − g_i(old x_i)    (j: the children of i; at the root y_i, too),    y_i = g_i at first

What a node tracks it gives away whole, so all that there is of gradients comes together at the root: its y is their
sum, each as old as its node is links away, and the sum of all y is the sum of all gradients, always. The step η/n makes
that sum a mean, so that η is the learning rate of all others. Node 0 is the root, and v has the children Bv + 1 …
Bv + B. Exact with a constant η, as gradient tracking is, for one model down and one up along each link of a tree.

What goes up is not y_i but the sum of all that i has ever pushed, s_i, and its parent takes the difference to the last
that it heard: a message that is lost is made up for by the next one, and losses leave no rest. (Running sums as in
robust push-sum, Hadjicostis, Vaidya, Domínguez-García 2016, and ASY-SONATA, Tian, Sun, Scutari 2020, from memory.) On
a tree s_i = g_i + Σ_j s_j, the gradients of all below i, each as last heard. So the sum of all y, with what was sent
and not heard, is that of the last gradients. Who does not hear its parent stays where it is.

A node that is lost, as the runtime says, is taken out, with all that was heard through it, and n is the number of those
that are left. It cuts the tree: who has lost its parent is the root of all below it, along s in place of y, until the
parent is there again, and all go on from that one's model; so also from the root's, when it comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.effects import GRADIENT, Arrival, Combine, Differentiate, Effect, Forget
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, NetworkView
from walktalk.protocols.mechanisms.meeting import HALF, MODEL, Meeting, arrivals
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import FIXED, Demand

DOWN, UP = "down", "up"  # kinds of messages: parameters, and gradients
MESSAGES = {**arrivals(DOWN), **arrivals(UP, once=False)}  # what comes from below is compared with the next, too
TRACKER, LAST = "tracker", "last"  # y, and the gradient of the round before
PUSHED = "pushed"  # s, all that was ever pushed up


@dataclass(frozen=True)
class PushPull(NeighbourRounds):
    """Every node takes its parameters from its parent in a tree, and pushes what it knows of gradients up to it.

    Args:
        branches: how many children a node has, B; with other numbers than 2 take a graph that has such a tree's links,
            as complete has.
    """

    branches: Annotated[int, Ge(1)] = 2
    name: ClassVar[str] = "push_pull"
    also_known_as: ClassVar[tuple[str, ...]] = ("btpp",)
    proved: ClassVar[str] = "You & Pu 2024, for two branches or more"
    bound: ClassVar[str] = "push_pull_order"
    paper: ClassVar[str] = "You and Pu, NeurIPS 2024 (B-ary Tree Push-Pull); Pu et al. 2021 (Push-Pull)"
    keeps: ClassVar[str] = "a model, a tracker, the last gradient and what each child pushed last at every node"
    sends: ClassVar[str] = "in a round a model down and one up along every link of a tree"
    guarantees: ClassVar[str] = (
        "the sum of all trackers is the sum of all gradients, and comes together at the root: exact with a constant "
        "rate on unlike nodes, also where messages are lost"
    )
    title: ClassVar[str] = "BTPP"
    description: ClassVar[str] = "Along a tree, parameters go down and gradients up: its root follows all of them."
    colour: ClassVar[str] = "#7A5C61"
    needs_own_gradients: ClassVar[str] = "asks for gradients, not for trained models"
    why_nodes_stay: ClassVar[str] = "a node's number is its place in the tree, along which gradients are gathered"

    @property
    def demands(self) -> tuple[Demand, ...]:
        tree = Demand(
            "the links of a tree in which node v has the children Bv + 1 … Bv + B",
            lambda graph: all(parent(v, self.branches) in graph.neighbours(v) for v in range(1, graph.nodes)),
            "network: {graph} lacks links of the tree of {label}; take "
            + ("binary_tree, or complete" if self.branches == 2 else "complete"),
        )
        return FIXED, tree

    @property
    def made_for(self) -> str:
        return "binary_tree" if self.branches == 2 else "complete"

    @property
    def messages(self) -> Mapping[str, Arrival]:
        return MESSAGES

    def machine(self, network_view: NetworkView) -> Machine:
        tree = Tree(network_view.nodes, self.branches)
        above, below = tree.above(network_view.node), tree.below(network_view.node)
        return self.node(network_view, Pulling(tree, network_view.node), {DOWN: (below, above), UP: (above, below)})


def parent(node: int, branches: int) -> int:
    """Number of the parent of any node but the root."""
    return (node - 1) // branches


@dataclass(frozen=True, slots=True)
class Tree:
    """Who is whose child."""

    nodes: int
    branches: int

    def above(self, node: int) -> tuple[int, ...]:
        """The parent, or nobody at the root."""
        return (parent(node, self.branches),) if node else ()

    def below(self, node: int) -> tuple[int, ...]:
        """Whom the node is the parent of."""
        first = self.branches * node + 1
        return tuple(range(min(first, self.nodes), min(first + self.branches, self.nodes)))

    def size(self, node: int) -> int:
        """How many there are from a node on downwards, with it."""
        count, first, last = 0, node, node
        while first < self.nodes:
            count += min(last, self.nodes - 1) - first + 1
            first, last = self.branches * first + 1, self.branches * last + self.branches
        return count


class Pulling(Rule):
    """After a round the tracker of all but the root is what came from below, until the next gradient is there."""

    adopts: ClassVar[bool] = False  # the root is sent no model

    __slots__ = ("heard", "node", "tracks", "tree", "without")

    def __init__(self, tree: Tree, node: int) -> None:
        self.tree, self.node, self.tracks = tree, node, False
        self.heard: dict[int, int] = {}  # child -> how many of those behind it are lost; what it pushed is in a slot
        self.without = 0  # nodes that what comes from above was made without

    def check(self, kind: str, note: bytes) -> int:
        if (lost := int.from_bytes(note, "little")) > self.tree.nodes:
            raise ValueError(f"{lost} of {self.tree.nodes} nodes cannot be lost")
        return lost

    def begin(self) -> list[Effect]:
        return []

    def work(self) -> Differentiate:
        return Differentiate(MODEL)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        below, cut = self.tree.below(self.node), meeting.cut
        gone = [child for child in below if child in cut and self.heard.pop(child, None) is not None]
        lost = sum(self.tree.size(child) if child in cut else self.heard.get(child, 0) for child in below)
        if alone := not self._has_parent(meeting):
            self.without = self.tree.nodes - self.tree.size(self.node) + lost
        kept = {TRACKER: 1.0} if self.tracks and (below or not self.node) else {}  # a leaf has given all away
        before = {**kept, **{_heard(child): -1.0 for child in gone}, LAST: -1.0} if self.tracks else {}
        self.tracks = True
        step = -event.lr / max(self.tree.nodes - self.without, 1)
        return [
            Combine(TRACKER, {**before, GRADIENT: 1.0}),
            *(Forget(_heard(child)) for child in gone),
            Combine(LAST, {GRADIENT: 1.0}),
            Combine(PUSHED, {GRADIENT: 1.0, **{_heard(child): 1.0 for child in self.heard}}),
            Combine(HALF, {MODEL: 1.0, (PUSHED if alone else TRACKER): step}, {GRADIENT: 1.0}),
            *meeting.send(HALF, DOWN, _note(self.without)),
            *meeting.send(PUSHED, UP, _note(lost)),
        ]

    def mix(self, meeting: Meeting) -> list[Effect]:
        came = {child: meeting.slot(UP, child) for child in meeting.there(UP)}
        old = {_heard(child): -1.0 for child in came if child in self.heard}
        own = {} if self.node else {TRACKER: 1.0}
        tracked = {**own, **dict.fromkeys(came.values(), 1.0), **old} or {TRACKER: 0.0}
        self.heard.update({child: min(meeting.said(UP, child), self.tree.size(child)) for child in came})
        kept = [Combine(_heard(child), {slot: 1.0}) for child, slot in came.items()]
        return [*self._pull(meeting), *([Combine(TRACKER, tracked)] if self.tree.below(self.node) else []), *kept]

    def _pull(self, meeting: Meeting) -> list[Effect]:
        """The parent's model, or one's own where there is no parent; or stay, where it is late."""
        for above in meeting.there(DOWN):
            self.without = meeting.said(DOWN, above)
            return [Combine(MODEL, {meeting.slot(DOWN, above): 1.0})]
        return [] if self._has_parent(meeting) else [Combine(MODEL, {HALF: 1.0})]

    def _has_parent(self, meeting: Meeting) -> bool:
        """Whether there is one, and it lives."""
        return any(above not in meeting.cut for above in self.tree.above(self.node))


def _heard(child: int) -> str:
    """Where what a child pushed last is."""
    return f"heard/{child}"


def _note(lost: int) -> bytes:
    """How many nodes are lost, for the way; nothing where none is."""
    return lost.to_bytes(4, "little") if lost else b""
