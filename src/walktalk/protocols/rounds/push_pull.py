"""B-ary Tree Push-Pull (You and Pu 2024): parameters go down a tree, gradients go up it.

    x_i ← x_p − (η/n) y_p    (p: the parent of i; the root is its own)
    y_i ← Σ_j y_j + g_i(new x_i) − g_i(old x_i)    (j: the children of i; at the root y_i, too),    y_i = g_i at first

What a node tracks it gives away whole, so all that there is of gradients comes together at the root: its y is their
sum, each as old as its node is links away, and the sum of all y is the sum of all gradients, always. The step η/n makes
that sum a mean, so that η is the learning rate of all others. Node 0 is the root, and v has the children Bv + 1 …
Bv + B. Exact with a constant η, as gradient tracking is, for one model down and one up along each link of a tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.demands import FIXED, Demand
from walktalk.protocols.effects import GRADIENT, Combine, Differentiate, Effect, Send
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, Protocol, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.rounds.meeting import HALF, MODEL, InRounds, Meeting, Rule, arrivals

DOWN, UP = "down", "up"  # kinds of messages: parameters, and gradients
MESSAGES = arrivals(DOWN, UP)
TRACKER, LAST = "tracker", "last"  # y, and the gradient of the round before


@dataclass(frozen=True)
class PushPull(Protocol):
    """Every node takes its parameters from its parent in a tree, and pushes what it knows of gradients up to it.

    Args:
        branches: how many children a node has, B; with other numbers than 2 take a graph that has such a tree's links,
            as complete has.
    """

    branches: Annotated[int, Ge(1)] = 2
    name: ClassVar[str] = "push_pull"
    family: ClassVar[str] = "gossip"
    paper: ClassVar[str] = "You and Pu, NeurIPS 2024 (B-ary Tree Push-Pull); Pu et al. 2021 (Push-Pull)"
    keeps: ClassVar[str] = "a model, a tracker and the last gradient at every node"
    sends: ClassVar[str] = "in a round a model down and one up along every link of a tree"
    guarantees: ClassVar[str] = (
        "the sum of all trackers is the sum of all gradients, and comes together at the root: exact with a constant "
        "rate on unlike nodes"
    )
    title: ClassVar[str] = "BTPP"
    description: ClassVar[str] = "Along a tree, parameters go down and gradients up: its root follows all of them."
    colour: ClassVar[str] = "#7A5C61"
    instead: ClassVar[str] = "gradient_tracking or relay_sgd"  # nobody is heard behind a node that is dead

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

    def machine(self, surroundings: Surroundings) -> Machine:
        v, n, b = surroundings.node, surroundings.nodes, self.branches
        above = (parent(v, b),) if v else ()
        below = tuple(range(min(b * v + 1, n), min(b * v + b + 1, n)))
        return InRounds(Meeting(surroundings, MESSAGES, {DOWN: above, UP: below}), Pulling(n, above, below))


def parent(node: int, branches: int) -> int:
    """Of any node but the root."""
    return (node - 1) // branches


class Pulling(Rule):
    """After a round the tracker of all but the root is what came from below, until the next gradient is there."""

    __slots__ = ("above", "below", "nodes", "tracks")

    def __init__(self, nodes: int, above: tuple[int, ...], below: tuple[int, ...]) -> None:
        """`above`: the parent, or nobody at the root; `below`: the children."""
        self.nodes, self.above, self.below, self.tracks = nodes, above, below, False

    def begin(self) -> list[Effect]:
        return []

    def work(self) -> Differentiate:
        return Differentiate(MODEL)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        kept = {TRACKER: 1.0} if self.tracks and (self.below or not self.above) else {}  # a leaf has given all away
        before = {**kept, LAST: -1.0} if self.tracks else {}
        self.tracks = True
        down, up = (Message(kind, round=meeting.round) for kind in (DOWN, UP))
        return [
            Combine(TRACKER, {**before, GRADIENT: 1.0}),
            Combine(LAST, {GRADIENT: 1.0}),
            Combine(HALF, {MODEL: 1.0, TRACKER: -event.lr / self.nodes}, {GRADIENT: 1.0}),
            *(Send(to, down, HALF) for to in self.below),
            *(Send(to, up, TRACKER) for to in self.above),
        ]

    def mix(self, meeting: Meeting) -> list[Effect]:
        pulled = meeting.slot(DOWN, self.above[0]) if self.above else HALF
        pushed = {meeting.slot(UP, child): 1.0 for child in self.below}
        own = {} if self.above else {TRACKER: 1.0}
        gathered = [Combine(TRACKER, {**own, **pushed})] if self.below else []
        return [Combine(MODEL, {pulled: 1.0}), *gathered]
