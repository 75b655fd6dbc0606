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
A message that is lost counts for nothing (`mechanisms.trees`); what is relayed next is a sum of fewer models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from walktalk.graphs import pair_of_trees
from walktalk.protocols.effects import UPDATE, Arrival, Combine, Effect
from walktalk.protocols.events import Trained
from walktalk.protocols.machine import Machine, NetworkView
from walktalk.protocols.mechanisms.meeting import HALF, MODEL, Meeting, arrivals
from walktalk.protocols.mechanisms.rounds import NeighbourRounds, Rule
from walktalk.protocols.mechanisms.trees import A_TREE, TWO_TREES, LinkSums
from walktalk.protocols.self_description import FIXED, Demand, InLabel

Trees = Literal["graph", "two_binary"]


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
        return FIXED, A_TREE if self.trees == "graph" else TWO_TREES

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
        trees = [LinkSums(kind, arrival.codec, to, network_view.nodes) for (kind, arrival), to in ways]
        both_ways = {tree.kind: (tree.links, tree.links) for tree in trees}
        return self.node(network_view, Relay(network_view.nodes, trees), both_ways)


class Relay(Rule):
    """The last sum that came from each neighbour is kept until the next has been sent."""

    __slots__ = ("nodes", "trees")

    adopts: ClassVar[bool] = False  # sums come, and perhaps only halves of them

    def __init__(self, nodes: int, trees: list[LinkSums]) -> None:
        self.nodes, self.trees = nodes, trees

    def check(self, kind: str, note: bytes) -> int:
        return self.trees[0].read(note)

    def learn(self, event: Trained, meeting: Meeting) -> list[Effect]:
        half = Combine(HALF, {MODEL: 1.0, UPDATE: 1.0}, {UPDATE: 1.0})
        return [half, *(effect for tree in self.trees for effect in tree.relay(HALF, meeting))]

    def mix(self, meeting: Meeting) -> list[Effect]:
        effects, spent, mean = list[Effect](), list[Effect](), dict[str, float]()
        for tree in self.trees:
            effects += tree.receive(meeting)
            # its own as it is now, and as it was in the place of those that are missing
            own = {HALF: 1.0, MODEL: float(tree.missing)} if tree.missing else {HALF: 1.0}
            parted, used = tree.cut(own)
            effects, spent = effects + parted, spent + used
            mean |= {slot: weight / self.nodes for slot, weight in tree.weights(own).items()}
        return [*effects, Combine(MODEL, mean), *spent]
