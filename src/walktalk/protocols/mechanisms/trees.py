"""Rounds along a tree: sums that are relayed along its links, and how many nodes are left.

A tree has no cycles, so what is relayed along it counts everybody once. What becomes of a message that is lost depends
on what it says of itself. `LinkSums` are of models, and each says of how many: what is lost is in no sum, and counts
for nothing, so weights sum to one whatever is lost, and a tree that falls apart goes on in parts. `Census` is of nodes:
each says to its parent how many below it are lost, and to its children how many in all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from walktalk.graphs import pair_of_trees
from walktalk.protocols.effects import Combine, Effect, Forget, Note, cut_out
from walktalk.protocols.mechanisms.meeting import Meeting
from walktalk.protocols.self_description import Demand

A_TREE = Demand(
    "a tree",
    lambda graph: graph.edges == graph.nodes - 1,
    "network: {graph} is no tree, on which alone {label} can run; take binary_tree, path or star, or trees: two_binary "
    "on two_binary_trees",
)
TWO_TREES = Demand(
    "all links of two binary trees",
    lambda graph: all(
        set(tree.neighbours(v)) <= set(graph.neighbours(v))
        for tree in (pair_of_trees(graph.nodes) if graph.nodes > 1 else ())
        for v in range(graph.nodes)
    ),
    "network: {graph} lacks links of the two trees of {label}; take two_binary_trees",
)


# -- Sums that are relayed: each is of all models behind a link, and says of how many ---------------------------------


class LinkSums:
    """The last sum that came along each of a node's links in one tree, and of how many models it is.

    Args:
        kind: of the messages along the tree.
        codec: which part of a model goes along it; "": all of it.
        links: the node's neighbours in the tree.
        nodes: how many there are.
    """

    __slots__ = ("codec", "counts", "kind", "links", "nodes")

    def __init__(self, kind: str, codec: str, links: tuple[int, ...], nodes: int) -> None:
        self.kind, self.codec, self.links, self.nodes = kind, codec, links, nodes
        self.counts: dict[int, int] = {}  # neighbour in the tree -> how many models its last sum is of

    @property
    def missing(self) -> int:
        """How many of the others' models are in none of these sums."""
        return self.nodes - 1 - sum(self.counts.values())

    def read(self, note: bytes) -> int:
        """How many models a sum is of that came with this note."""
        (count,) = struct.unpack("<I", note)
        if not 1 <= count < max(self.nodes, 2):
            raise ValueError(f"a sum of {count} models of {self.nodes} nodes is not possible")
        return int(count)

    def relay(self, own: str, meeting: Meeting) -> list[Effect]:
        """Send along every link the node's own model and the sums that came along all others."""
        ways = [to for to in self.links if to not in meeting.cut]
        return [effect for to in ways for effect in self._send(own, to, meeting)]

    def _send(self, own: str, to: int, meeting: Meeting) -> list[Effect]:
        slot, behind = f"to/{self.kind}/{to}", {self._of(peer): 1.0 for peer in self.counts if peer != to}
        note = struct.pack("<I", 1 + sum(count for peer, count in self.counts.items() if peer != to))
        return [Combine(slot, {own: 1.0, **behind}), *meeting.send(slot, self.kind, note, to=(to,))]

    def receive(self, meeting: Meeting) -> list[Effect]:
        """Put those that have come in place of the last ones, until the next have been sent."""
        came = {peer: meeting.slot(self.kind, peer) for peer in meeting.there(self.kind)}
        gone = [Forget(self._of(peer)) for peer in self.counts if peer not in came]
        kept = [Combine(self._of(peer), {slot: 1.0}) for peer, slot in came.items()]
        self.counts = {peer: meeting.said(self.kind, peer) for peer in came}
        return [*gone, *meeting.opened(self.kind), *kept, *self._leave_out_too_much()]

    def _leave_out_too_much(self) -> list[Effect]:
        """Where sums are said to be of more models than there are, those that claim most count for nothing."""
        effects = list[Effect]()
        while self.missing < 0:
            greedy = max(self.counts, key=self.counts.__getitem__)
            del self.counts[greedy]
            effects += [Forget(self._of(greedy)), Note("left_out", peer=greedy)]
        return effects

    def weights(self, own: dict[str, float]) -> dict[str, float]:
        """Slots of one sum of all: the node's own, or of each the part that goes along this tree, and what came."""
        return {self._part(slot): weight for slot, weight in own.items()} | {self._of(p): 1.0 for p in self.counts}

    def cut(self, slots: Iterable[str]) -> tuple[list[Effect], list[Effect]]:
        """Makes of the node's own slots the parts that go along this tree; and what forgets them again."""
        if not self.codec:
            return [], []
        parts = [(slot, self._part(slot)) for slot in slots]
        return [e for slot, part in parts for e in cut_out(slot, part, self.codec)], [Forget(part) for _, part in parts]

    def _part(self, slot: str) -> str:
        """Where that part of a slot is which goes along the tree."""
        return f"own/{self.kind}/{slot}" if self.codec else slot

    def _of(self, peer: int) -> str:
        """The slot with the last sum that a neighbour sent."""
        return f"from/{self.kind}/{peer}"


# -- A tree with a root, in which every node has so many children -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class RootedTree:
    """Who is whose child, where node 0 is the root and v has the children Bv + 1 … Bv + B."""

    nodes: int
    branches: int  # how many children a node has, B

    @staticmethod
    def demand(branches: int) -> Demand:
        """A graph that has all of such a tree's links."""
        take = "binary_tree, or complete" if branches == 2 else "complete"
        return Demand(
            "the links of a tree in which node v has the children Bv + 1 … Bv + B",
            lambda graph: all((v - 1) // branches in graph.neighbours(v) for v in range(1, graph.nodes)),
            "network: {graph} lacks links of the tree of {label}; take " + take,
        )

    def above(self, node: int) -> tuple[int, ...]:
        """The parent, or nobody at the root."""
        return ((node - 1) // self.branches,) if node else ()

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


class Census:
    """How many nodes are left, as one of them knows, and who of those next to it is.

    Who has lost its parent is the root of all below it, until the parent is there again.
    """

    __slots__ = ("above", "below", "heard", "node", "tree", "without")

    def __init__(self, tree: RootedTree, node: int) -> None:
        self.tree, self.node, self.above, self.below = tree, node, tree.above(node), tree.below(node)
        self.heard: dict[int, int] = {}  # child that was heard, and lives -> how many of those behind it are lost
        self.without = 0  # nodes that what comes from above was made without

    @property
    def living(self) -> int:
        """How many there are, with this one."""
        return max(self.tree.nodes - self.without, 1)

    def is_root(self, meeting: Meeting) -> bool:
        """Whether it has no parent, or has lost it."""
        return all(above in meeting.cut for above in self.above)

    def read(self, note: bytes) -> int:
        """How many nodes are lost, by what came with a message."""
        if (lost := int.from_bytes(note, "little")) > self.tree.nodes:
            raise ValueError(f"{lost} of {self.tree.nodes} nodes cannot be lost")
        return lost

    def slot(self, child: int) -> str:
        """Where what a child sent up last is kept."""
        return f"heard/{child}"

    def strike_out(self, meeting: Meeting) -> list[str]:
        """Strike out children that are lost; where what they sent last is."""
        gone = [one for one in self.below if one in meeting.cut and self.heard.pop(one, None) is not None]
        return [self.slot(one) for one in gone]

    def say(self, meeting: Meeting) -> tuple[bytes, bytes]:
        """What to tell those below, and the one above; nothing where nobody is lost."""
        lost = sum(self.tree.size(one) if one in meeting.cut else self.heard.get(one, 0) for one in self.below)
        if self.is_root(meeting):
            self.without = self.tree.nodes - self.tree.size(self.node) + lost
        down, up = (count.to_bytes(4, "little") if count else b"" for count in (self.without, lost))
        return down, up

    def hear_from_below(self, kind: str, meeting: Meeting) -> tuple[dict[str, str], list[str]]:
        """Read what children have sent: its slots, with where to keep each, and those of what they sent before."""
        there = meeting.there(kind)
        before = [self.slot(child) for child in there if child in self.heard]
        self.heard |= {child: min(meeting.said(kind, child), self.tree.size(child)) for child in there}
        return {meeting.slot(kind, child): self.slot(child) for child in there}, before

    def slot_from_above(self, kind: str, meeting: Meeting) -> str:
        """Read what the parent has sent: its slot; "" where nothing has come."""
        for above in meeting.there(kind):
            self.without = meeting.said(kind, above)
            return meeting.slot(kind, above)
        return ""
