"""What a node knows of the network: its neighbours, who can send to it, who has joined and left."""

from __future__ import annotations

from dataclasses import dataclass

from walktalk.graphs import Rounds


@dataclass(frozen=True, slots=True)
class NetworkView:
    """What a node knows of the network before the first message."""

    node: int  # its own number
    nodes: int  # how many there are, V
    neighbours: tuple[int, ...]  # whom it can send to
    degrees: tuple[int, ...]  # how many neighbours each of those has
    resources: tuple[float, float, float] = (0.0, 0.0, 0.0)  # its own bandwidth, memory and compute, for elections
    heard: tuple[int, ...] | None = None  # who can send to it, on a directed graph; None: its neighbours
    samples: int = 1  # how much data it has
    rounds: Rounds | None = None  # on a graph that changes by round: who meets whom in which
    joined: frozenset[int] = frozenset()  # nodes that were not there at first; all others have numbers below `first`
    leaving: frozenset[int] = frozenset()  # nodes that have left for good, or are about to
    first: int = 0  # how many there were at first; 0: nobody has come or left
    version: int = 0  # a number for who has come and left: two nodes with the same one know the same network

    def knows(self, node: int) -> bool:
        """Whether there is such a node, or was."""
        return 0 <= node < (self.first or self.nodes) or node in self.joined

    @property
    def sources(self) -> tuple[int, ...]:
        """Who can send to this node."""
        return self.neighbours if self.heard is None else self.heard

    def meets(self, round_: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Whom this node can send to in a round, and who can send to it; the same in all rounds of a fixed graph."""
        if self.rounds is None:
            return self.neighbours, self.sources
        return self.rounds.targets(self.node, round_), self.rounds.sources(self.node, round_)
