"""A graph whose nodes come and go: who is a neighbour of whom follows from who has come and who has left, and from
nothing else, so that all who know the same agree, in whatever order they heard of it.

- One that comes brings its neighbours along (`attached` says whom it should take).
- One that leaves takes its edges away. Where the rest falls apart by that, the pieces that it held together are joined
  up: of each piece one node that was its neighbour, the one with the fewest neighbours, and those as a binary tree, so
  that no node gets more than three edges more and no piece is far from another. And a neighbour of it that is left
  with a single edge, and had more, gets one to another of its neighbours: a cycle stays a cycle.

Numbers need not be consecutive: those who come take any that are free.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from walktalk.core.errors import GraphError
from walktalk.graphs.graph import Graph

FEWEST = 2  # neighbours that one who comes is given: the loss of one must not cut it off


@dataclass(frozen=True)
class Changing:
    """A graph as it has become.

    Args:
        base: as it was at first.
        joined: those who came, and the neighbours that each was given.
        left: those who have left for good.
    """

    base: Graph
    joined: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    left: frozenset[int] = frozenset()

    @cached_property
    def present(self) -> tuple[int, ...]:
        """The numbers of the nodes that are there now, in order."""
        return tuple(sorted(node for node in self._before if node not in self.left))

    @cached_property
    def rows(self) -> dict[int, tuple[int, ...]]:
        """The neighbours of everybody who is there, in order."""
        rows = {node: {peer for peer in self._before[node] if peer not in self.left} for node in self.present}
        pieces = _Pieces(rows)
        for gap in self._gaps():
            self._bridge(sorted(gap), rows, pieces)
            self._hold_on(sorted(gap), rows, pieces)
        return {node: tuple(sorted(peers)) for node, peers in rows.items()}

    def degree(self, node: int) -> int:
        """How many neighbours a node has that is there."""
        return len(self.rows[node])

    def graph(self, names: Mapping[int, str] | None = None) -> Graph:
        """As a graph of those who are there, numbered anew from 0 in their order."""
        place = {node: index for index, node in enumerate(self.present)}
        edges = [(place[a], place[b]) for a, peers in self.rows.items() for b in peers if a < b]
        changed = bool(self.joined or self.left)
        name = f"{self.base.name}, {len(self.joined)} came and {len(self.left)} left" if changed else self.base.name
        made = Graph.from_edges(len(place), edges, name)
        return made if names is None else made.named([names[node] for node in self.present])

    def everybody(self) -> Graph:
        """All who ever were there, with all edges that ever were, in the order of their numbers: for a picture."""
        place = {node: index for index, node in enumerate(sorted(self._before))}
        ever = [(a, b) for rows in (self._before, self.rows) for a, peers in rows.items() for b in peers]
        edges = {(place[a], place[b]) for a, b in ever if a < b}
        return Graph.from_edges(len(place), sorted(edges), self.base.name, self.base.notes)

    @cached_property
    def _before(self) -> dict[int, set[int]]:
        """Everybody who ever was there, with all edges; one to somebody who is not known yet does not count."""
        if self.base.directed or self.base.rounds is not None:
            raise GraphError(f"{self.base.name}: nodes can come and go only where links go both ways, in all rounds")
        rows = {node: set(self.base.neighbours(node)) for node in range(self.base.nodes)}
        rows |= {node: set() for node in self.joined}
        for node, peers in self.joined.items():
            for peer in peers:
                if peer in rows and peer != node:
                    rows[node].add(peer)
                    rows[peer].add(node)
        return rows

    def _gaps(self) -> list[set[int]]:
        """What is left of those who have left: for each group of them that hung together, who its neighbours were."""
        unseen, gaps = sorted(self.left & self._before.keys(), reverse=True), []
        seen: set[int] = set()
        while unseen:
            stack, rim = [unseen.pop()], set()
            while stack:
                node = stack.pop()
                if node in seen:
                    continue
                seen.add(node)
                stack += [peer for peer in self._before[node] if peer in self.left]
                rim |= {peer for peer in self._before[node] if peer not in self.left}
            gaps.append(rim)
        return gaps

    def _hold_on(self, rim: list[int], rows: dict[int, set[int]], pieces: _Pieces) -> None:
        """Those around a gap that have too few neighbours left get one more."""
        for node in rim:
            others = [peer for peer in rim if peer != node and peer not in rows[node]]
            if len(rows[node]) < FEWEST <= len(self._before[node]) and others:
                other = min(others, key=lambda peer: (len(rows[peer]), peer))
                rows[node].add(other)
                rows[other].add(node)
                pieces.join(node, other)

    @staticmethod
    def _bridge(rim: Iterable[int], rows: dict[int, set[int]], pieces: _Pieces) -> None:
        """Join up the pieces that the nodes around a gap are in."""
        by_piece: dict[int, list[int]] = {}
        for node in rim:
            by_piece.setdefault(pieces.of(node), []).append(node)
        chosen = [min(nodes, key=lambda node: (len(rows[node]), node)) for nodes in by_piece.values()]
        for index, node in enumerate(chosen[1:], 1):
            other = chosen[(index - 1) // 2]
            rows[node].add(other)
            rows[other].add(node)
            pieces.join(node, other)


class _Pieces:
    """Which nodes hang together, as edges are added."""

    def __init__(self, rows: Mapping[int, Collection[int]]) -> None:
        self._above = {node: node for node in rows}
        for node, peers in rows.items():
            for peer in peers:
                self.join(node, peer)

    def of(self, node: int) -> int:
        """The piece of a node: the number of one in it."""
        while self._above[node] != node:
            self._above[node] = node = self._above[self._above[node]]
        return node

    def join(self, one: int, other: int) -> None:
        """Links the nodes of a group to each other, so that the graph stays connected."""
        low, high = sorted((self.of(one), self.of(other)))
        self._above[high] = low


def attached(network: Changing, name: str, among: Collection[int] | None = None) -> tuple[int, ...]:
    """Whom one who comes should take as neighbours: as many as others have on average, those that have the fewest.

    Of those with equally many a hash of both decides, which is as good as chance: edges between random nodes keep a
    graph well mixed. On a complete graph it takes all.

    Args:
        network: as it is now.
        name: of the one who comes.
        among: those who can be taken; left out: all who are there.
    """
    there = [node for node in network.present if among is None or node in among]
    mean = sum(network.degree(node) for node in network.present) / max(len(network.present), 1)
    wanted = max(FEWEST, round(mean * (1.0 + 1.0 / max(len(network.present), 1))))
    order = sorted(there, key=lambda node: (network.degree(node), _chance(name, node)))
    return tuple(sorted(order[:wanted]))


def _chance(name: str, node: int) -> bytes:
    return hashlib.blake2b(f"{name} {node}".encode(), digest_size=8).digest()
