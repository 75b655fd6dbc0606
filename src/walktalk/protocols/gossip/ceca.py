"""DSGD-CECA (Ding, Jin, Liu, Zhu, Yuan, Yin 2023): the exact mean of any number of nodes in ⌈log₂ n⌉ rounds.

    a_i: the mean of nodes i − m … i,  b_i: of i − m … i − 1 alone,  m = 0 at first, and then by the digits d of n − 1:
    d = 1:  h = a − η g(a), to node i + m + 1;   a ← (h_i + h_j)/2,  b ← ((m+1) h_j + m b')/(2m+1)    (j = i − m − 1)
    d = 0:  h = b − η g(b), to node i + m;       b ← (h_i + h_j)/2,  a ← ((m+1) a' + m h_j)/(2m+1)    (j = i − m)
    (a', b': one's own, moved by the same −η g as h);    m ← 2m + d, and anew from a, m = 0, when all digits are through

Windows double, so one message a round is enough, where others need two, or a power of two. What is learned meanwhile
goes into both, so the mean of all a moves by the mean of all gradients, each at one's own a or b.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

from walktalk.graphs import Graph, Shifts
from walktalk.protocols.effects import UPDATE, Combine, Effect, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, NetworkView
from walktalk.protocols.mechanisms.meeting import HALF, MODEL, Meeting, drawn_among
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import FIXED, Demand, Law

OTHERS, REST = "others", "rest"  # b, the mean without the node itself; and which of a and b is not sent, moved as h


class Doubling(NamedTuple):
    """A round in which windows of nodes are doubled."""

    width: int  # m: how many nodes beside itself a node's a is the mean of
    is_odd: bool  # d: whether the window is doubled and one more


@lru_cache(maxsize=64)
def doublings(nodes: int) -> tuple[Doubling, ...]:
    """The rounds after which all have the mean; they are gone through over and over."""
    digits = f"{nodes - 1:b}"
    return tuple(Doubling(int(digits[:k] or "0", 2), digits[k] == "1") for k in range(len(digits)))


def ring_of(nodes: int) -> Shifts:
    """Whom each of so many nodes sends to in which round."""
    shifts = [one.width + one.is_odd for one in doublings(nodes)]
    return Shifts(nodes, tuple((shift,) if shift else () for shift in shifts))


def _has_links(graph: Graph) -> bool:
    """Whether everybody can send to all that it has to."""
    ring, pairs = ring_of(graph.nodes), itertools.product(range(graph.nodes), range(len(doublings(graph.nodes))))
    return all({*ring.targets(v, round_)} <= {*graph.neighbours(v)} for v, round_ in pairs)


LACKS = "network: {graph} lacks links that {label} needs; take complete"
LINKS = Demand("links to the nodes that its messages go to, 1 … V/2 further", _has_links, LACKS)


@dataclass(frozen=True)
class CECA(NeighbourRounds):
    """Every node trains and sends to one other; means double, so that all have everybody's."""

    name: ClassVar[str] = "ceca"
    proved: ClassVar[str] = "Ding et al. 2023"
    bound: ClassVar[str] = "ceca_order"
    paper: ClassVar[str] = "Ding et al., ICML 2023 (DSGD-CECA-2P)"
    keeps: ClassVar[str] = "two models at every node: a mean with its own, and one without"
    sends: ClassVar[str] = "one of them to one other node in a round"
    guarantees: ClassVar[str] = (
        "all have the exact mean after ⌈log₂ V⌉ rounds; a constant rate leaves a rest on unlike nodes"
    )
    title: ClassVar[str] = "CECA"
    conserves: ClassVar[tuple[Law, ...]] = ("sum",)
    colour: ClassVar[str] = "#C2851C"
    demands: ClassVar[tuple[Demand, ...]] = (FIXED, LINKS)
    made_for: ClassVar[str] = "complete"
    on_directed_graphs: ClassVar[bool] = True
    mixes_once: ClassVar[bool] = False  # what comes goes into both means

    def machine(self, network_view: NetworkView) -> Machine:
        ring = drawn_among(network_view, ring_of)
        return self.node(ring, self.rule(ring))

    def rule(self, around: NetworkView) -> Rule:
        return Windows(doublings(around.nodes))


class Windows(Rule):
    """`MODEL` is a. Where a message is lost the node's own model stands for it, until means are begun anew."""

    __slots__ = ("now", "rounds")

    begins_anew: ClassVar[bool] = True  # means are of those that stood in the ring before

    def __init__(self, rounds: tuple[Doubling, ...]) -> None:
        self.rounds, self.now = rounds, rounds[0]

    def begin(self) -> list[Effect]:
        return [Combine(OTHERS, {MODEL: 1.0})]

    def work(self) -> Train:
        return Train(MODEL if self.now.is_odd else OTHERS)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        self.now = self.rounds[meeting.round % len(self.rounds)]  # a later one, where the node had to catch up
        sent, rest = (MODEL, OTHERS) if self.now.is_odd else (OTHERS, MODEL)
        return [
            Combine(HALF, {sent: 1.0, UPDATE: 1.0}, {UPDATE: 1.0}),
            Combine(REST, {rest: 1.0, UPDATE: 1.0}, {UPDATE: 1.0}),
            *meeting.send(HALF, "round"),
        ]

    def mix(self, meeting: Meeting) -> list[Effect]:
        sent, kept = (MODEL, OTHERS) if self.now.is_odd else (OTHERS, MODEL)
        halves, share = meeting.mean(HALF, "round"), (self.now.width + self.now.is_odd) / (2 * self.now.width + 1)
        theirs = {slot: share for slot in halves if slot != HALF and share}
        rest = {REST: 1.0 - share} if theirs and share < 1 else {} if theirs else {REST: 1.0}
        self.now = self.rounds[(meeting.round + 1) % len(self.rounds)]
        return [Combine(sent, halves), Combine(kept, rest | theirs)]
