"""B-ary Tree Push-Pull (You and Pu 2024): parameters go down a tree, gradients go up it.

    x_i ← x_p − (η/n) y_p    (p: the parent of i; the root is its own)
    y_i ← Σ_j y_j + g_i(new x_i) − g_i(old x_i)    (j: the children of i; at the root y_i, too),    y_i = g_i at first

What a node tracks it gives away whole, so all that there is of gradients comes together at the root: its y is their
sum, each as old as its node is links away, and the sum of all y is the sum of all gradients, always. The step η/n makes
that sum a mean, so that η is the learning rate of all others. Node 0 is the root, and v has the children Bv + 1 …
Bv + B. Exact with a constant η, as gradient tracking is, for one model down and one up along each link of a tree.

What goes up is not y_i but the sum of all that i has ever pushed, s_i, and its parent takes the difference to the last
that it heard, so losses leave no rest (running sums as in robust push-sum, Hadjicostis, Vaidya, Domínguez-García 2016,
and ASY-SONATA, Tian, Sun, Scutari 2020, from memory). On a tree s_i = g_i + Σ_j s_j, the gradients of all below i, each
as last heard: the sum of all y, with what was sent and not heard, is that of the last gradients.

A node that is lost is taken out, with all that was heard through it, and n is the number of those that are left
(`mechanisms.trees`). Who has lost its parent is the root of all below it, along s in place of y, until it is back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from walktalk.protocols.effects import GRADIENT, Combine, Differentiate, Effect, Forget
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, NetworkView
from walktalk.protocols.mechanisms.meeting import HALF, MODEL, Meeting
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.mechanisms.trees import Census, RootedTree
from walktalk.protocols.self_description import FIXED, Demand

DOWN, UP = "down", "up"  # kinds of messages: parameters, and gradients
TRACKER, LAST, PUSHED = "tracker", "last", "pushed"  # y, the gradient of the round before, and s


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
    kinds: ClassVar[tuple[str, ...]] = (DOWN, UP)
    mixes_once: ClassVar[bool] = False  # what comes from below is compared with the next, too
    description: ClassVar[str] = "Along a tree, parameters go down and gradients up: its root follows all of them."
    colour: ClassVar[str] = "#7A5C61"
    needs_own_gradients: ClassVar[str] = "asks for gradients, not for trained models"
    why_nodes_stay: ClassVar[str] = "a node's number is its place in the tree, along which gradients are gathered"

    @property
    def demands(self) -> tuple[Demand, ...]:
        return FIXED, RootedTree.demand(self.branches)

    @property
    def made_for(self) -> str:
        return "binary_tree" if self.branches == 2 else "complete"

    def machine(self, network_view: NetworkView) -> Machine:
        census = Census(RootedTree(network_view.nodes, self.branches), network_view.node)
        above, below = census.above, census.below
        return self.node(network_view, Pulling(census), {DOWN: (below, above), UP: (above, below)})


class Pulling(Rule):
    """After a round the tracker of all but the root is what came from below, until the next gradient is there."""

    adopts: ClassVar[bool] = False  # the root is sent no model

    __slots__ = ("census", "tracks")

    def __init__(self, census: Census) -> None:
        self.census, self.tracks = census, False

    def check(self, kind: str, note: bytes) -> int:
        return self.census.read(note)

    def work(self) -> Differentiate:
        return Differentiate(MODEL)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        census = self.census
        gone, (down, up) = census.strike_out(meeting), census.say(meeting)
        kept = {TRACKER: 1.0} if self.tracks and (census.below or not census.node) else {}  # a leaf has given all away
        before = {**kept, **dict.fromkeys(gone, -1.0), LAST: -1.0} if self.tracks else {}
        self.tracks = True
        followed = PUSHED if census.is_root(meeting) else TRACKER
        return [
            Combine(TRACKER, {**before, GRADIENT: 1.0}),
            *map(Forget, gone),
            Combine(LAST, {GRADIENT: 1.0}),
            Combine(PUSHED, {GRADIENT: 1.0, **dict.fromkeys(map(census.slot, census.heard), 1.0)}),
            Combine(HALF, {MODEL: 1.0, followed: -event.lr / census.living}, {GRADIENT: 1.0}),
            *meeting.send(HALF, DOWN, down),
            *meeting.send(PUSHED, UP, up),
        ]

    def mix(self, meeting: Meeting) -> list[Effect]:
        census, model = self.census, self.census.slot_from_above(DOWN, meeting)
        came, old = census.hear_from_below(UP, meeting)
        own = {} if census.node else {TRACKER: 1.0}
        tracked = {**own, **dict.fromkeys(came, 1.0), **dict.fromkeys(old, -1.0)} or {TRACKER: 0.0}
        pulled = model or (HALF if census.is_root(meeting) else MODEL)  # who waits for its parent stays where it is
        return [
            *([Combine(MODEL, {pulled: 1.0})] if pulled != MODEL else []),
            *([Combine(TRACKER, tracked)] if census.below else []),
            *(Combine(kept, {slot: 1.0}) for slot, kept in came.items()),
        ]
