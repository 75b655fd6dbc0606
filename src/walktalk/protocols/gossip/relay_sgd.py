"""RelaySGD (Vogels, He, Koloskova, Lin, Karimireddy, Stich, Jaggi 2021): sums that are relayed along a tree.

    m_{i→j} = x_i + Σ_{k≠j} m_{k→i},    c_{i→j} = 1 + Σ_{k≠j} c_{k→i}        (m_{k→i}: of the round before)
    x_i ← (x_i + Σ_j m_{j→i} + (n − 1 − c) x̂_i) / n,    c = Σ_j c_{j→i}      (x_i: trained in this round, x̂_i: before)

A tree has no cycles, so a sum counts everybody once: each model arrives everywhere after as many rounds as it is links
away, with weight 1/n, whatever the tree; data may be as unlike as they like. Sends what D-PSGD sends on the same tree.

On two binary trees the same is done twice at once, with every other parameter on the one tree and the rest on the other
(as in the authors' code, epfml/relaysgd): who sends three halves in one tree is a leaf of the other and sends one, so
a node sends two models a round at most, and nobody is further away than along a binary tree. While some models are on
the way still, the node's own model stands for them as it was before this round's training. So what a node learned
weighs 1/n from the start: with the trained one in their place, as the paper's formula may be read, a step that suits an
average of n would be taken whole by one node, and a model is lost where learning rates are high and data unlike
(`results/2026-11-16-published/lost_rules.py`). The authors' code does so where messages are lost, and else takes the
initial model.

A message that is lost counts for nothing: the sum that it held is in no other one, c is smaller by its count, and the
same stands for what is missing; what is relayed in the next round is a sum of fewer models. So weights sum to one
whatever is lost, and a tree that falls apart goes on in parts.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple, get_args

from walktalk.graphs import pair_of_trees
from walktalk.protocols.effects import UPDATE, Arrival, Combine, Decode, Effect, Encode, Forget, Note, Train
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, NetworkView
from walktalk.protocols.mechanisms.meeting import HALF, MODEL, Meeting, arrivals
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.self_description import FIXED, Demand, InLabel

Trees = Literal["graph", "two_binary"]


TREE = Demand(
    "a tree",
    lambda graph: graph.edges == graph.nodes - 1,
    "network: {graph} is no tree, on which alone {label} can run; take binary_tree, path or star, or trees: two_binary "
    "on two_binary_trees",
)
BOTH_TREES = Demand(
    "all links of two binary trees",
    lambda graph: all(
        set(tree.neighbours(v)) <= set(graph.neighbours(v))
        for tree in (pair_of_trees(graph.nodes) if graph.nodes > 1 else ())
        for v in range(graph.nodes)
    ),
    "network: {graph} lacks links of the two trees of {label}; take two_binary_trees",
)


class Tree(NamedTuple):
    """One tree, as a node sees it."""

    kind: str  # of the messages along it
    codec: str  # which part of a model goes along it; "": all of it
    links: tuple[int, ...]  # the node's neighbours in it


@dataclass(frozen=True)
class RelaySGD(NeighbourRounds):
    """On a tree, every node relays the sum of the models behind it, so that all are averaged exactly, only later.

    Args:
        trees: whether the graph itself is the tree, or two binary trees in it carry half of the parameters each
            (take the topology two_binary_trees, or a graph with all of its links).
    """

    trees: Annotated[Trees, InLabel("-{}")] = "graph"
    name: ClassVar[str] = "relay_sgd"
    paper: ClassVar[str] = "Vogels et al., NeurIPS 2021"
    keeps: ClassVar[str] = "a model at every node, and a sum for each link"
    sends: ClassVar[str] = "a sum along every link of a tree in a round"
    guarantees: ClassVar[str] = (
        "every update reaches everybody with the same weight, later by one round a link; counts say what was lost"
    )
    title: ClassVar[str] = "RelaySGD"
    description: ClassVar[str] = "On a tree, sums of models are relayed: everybody gets everybody's, each once."
    colour: ClassVar[str] = "#2F6690"
    why_nodes_stay: ClassVar[str] = (
        "sums are relayed along a tree, which one that joins or leaves would cut or close to a cycle"
    )

    @property
    def demands(self) -> tuple[Demand, ...]:
        return FIXED, TREE if self.trees == "graph" else BOTH_TREES

    @property
    def made_for(self) -> str:
        return "binary_tree" if self.trees == "graph" else "two_binary_trees"

    @classmethod
    def usual(cls) -> tuple[RelaySGD, ...]:
        return tuple(cls(trees) for trees in get_args(Trees))

    @property
    def messages(self) -> Mapping[str, Arrival]:
        codecs = {"relay": ""} if self.trees == "graph" else {f"relay_{k}": f"part({k}, 2)" for k in (0, 1)}
        # not once: a sum is mixed in, and relayed in the next round
        return {kind: arrivals(kind, codec=codec, once=False)[kind] for kind, codec in codecs.items()}

    def machine(self, network_view: NetworkView) -> Machine:
        node, both = network_view.node, self.trees == "two_binary" and network_view.nodes > 1
        links = [one.neighbours(node) for one in pair_of_trees(network_view.nodes)] if both else []
        ways = zip(self.messages.items(), links or [network_view.neighbours] * len(self.messages), strict=True)
        trees = [Tree(kind, arrival.codec, to) for (kind, arrival), to in ways]
        both_ways = {tree.kind: (tree.links, tree.links) for tree in trees}
        return self.node(network_view, Relay(network_view.nodes, trees), both_ways)


class Relay(Rule):
    """The last sum that came from each neighbour is kept until the next has been sent."""

    __slots__ = ("counts", "nodes", "trees")

    adopts: ClassVar[bool] = False  # sums come, and perhaps only halves of them

    def __init__(self, nodes: int, trees: list[Tree]) -> None:
        self.nodes, self.trees = nodes, trees
        self.counts: dict[str, dict[int, int]] = {tree.kind: {} for tree in trees}
        # neighbour in the tree -> how many models its last sum is of

    def check(self, kind: str, note: bytes) -> int:
        (count,) = struct.unpack("<I", note)
        if not 1 <= count < max(self.nodes, 2):
            raise ValueError(f"a sum of {count} models of {self.nodes} nodes is not possible")
        return int(count)

    def begin(self) -> list[Effect]:
        return []

    def work(self) -> Train:
        return Train(MODEL)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        half = Combine(HALF, {MODEL: 1.0, UPDATE: 1.0}, {UPDATE: 1.0})
        ways = [(tree, to) for tree in self.trees for to in tree.links if to not in meeting.cut]
        return [half, *(effect for tree, to in ways for effect in self._send(tree, to, meeting))]

    def _send(self, tree: Tree, to: int, meeting: Meeting) -> list[Effect]:
        counts, slot = self.counts[tree.kind], f"to/{tree.kind}/{to}"
        behind = {_sum_of(tree, peer): 1.0 for peer in counts if peer != to}
        note = struct.pack("<I", 1 + sum(count for peer, count in counts.items() if peer != to))
        return [Combine(slot, {HALF: 1.0, **behind}), *meeting.send(slot, tree.kind, note, to=(to,))]

    def mix(self, meeting: Meeting) -> list[Effect]:
        effects, spent, mean = list[Effect](), list[Effect](), dict[str, float]()
        for tree in self.trees:
            came = {peer: meeting.slot(tree.kind, peer) for peer in meeting.there(tree.kind)}
            effects += [Forget(_sum_of(tree, peer)) for peer in self.counts[tree.kind] if peer not in came]
            effects += [
                *meeting.opened(tree.kind),
                *(Combine(_sum_of(tree, p), {slot: 1.0}) for p, slot in came.items()),
            ]
            self.counts[tree.kind] = {peer: meeting.said(tree.kind, peer) for peer in came}
            effects += self._leave_out_too_much(tree)
            missing = self.nodes - 1 - sum(self.counts[tree.kind].values())
            own = {HALF: 1.0, MODEL: missing} if missing else {HALF: 1.0}  # as it is now, and as it was in their place
            mean |= {_part(tree, slot): weight / self.nodes for slot, weight in own.items()}
            mean |= {_sum_of(tree, peer): 1.0 / self.nodes for peer in self.counts[tree.kind]}
            effects += [effect for slot in own for effect in _parted(tree, slot)]
            spent += [Forget(_part(tree, slot)) for slot in own if tree.codec]
        return [*effects, Combine(MODEL, mean), *spent]

    def _leave_out_too_much(self, tree: Tree) -> list[Effect]:
        """Where sums are said to be of more models than there are, those that claim most count for nothing."""
        counts, effects = self.counts[tree.kind], list[Effect]()
        while sum(counts.values()) >= self.nodes:
            greedy = max(counts, key=counts.__getitem__)
            del counts[greedy]
            effects += [Forget(_sum_of(tree, greedy)), Note("left_out", peer=greedy)]
        return effects


def _part(tree: Tree, slot: str) -> str:
    """Where that part of a slot is which goes along a tree."""
    return f"own/{tree.kind}/{slot}" if tree.codec else slot


def _parted(tree: Tree, slot: str) -> list[Effect]:
    """Puts that part of a slot where it belongs."""
    packed = f"packed/{tree.kind}/{slot}"
    return [Encode(slot, packed, tree.codec), Decode(packed, _part(tree, slot)), Forget(packed)] if tree.codec else []


def _sum_of(tree: Tree, peer: int) -> str:
    """The slot with the last sum that a neighbour sent."""
    return f"from/{tree.kind}/{peer}"
