"""How far everybody is, without anyone in charge: each node counts for itself, and neighbours tell each other.

A node's own numbers only grow, so what is heard is merged by taking the larger ones, whatever the order or the path
(a grow-only counter). The sum over all nodes says when the run is over, within one round of gossip.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import NamedTuple

KIND = "tally"
_ENTRY = struct.Struct("<IQQB")
ENTRIES_AT_MOST = 180  # in one message, so that the note stays under 4 KiB; in larger networks a random choice


class Count(NamedTuple):
    """One node's numbers."""

    iterations: int = 0  # local trainings that it completed
    sent: int = 0  # bytes that it sent for the protocol
    done: bool = False  # it has seen the end of the run


@dataclass
class Tally:
    """What one node knows of all."""

    node: int
    nodes: int

    def __post_init__(self) -> None:
        self.counts: dict[int, Count] = {self.node: Count()}

    @property
    def own(self) -> Count:
        """This node's numbers."""
        return self.counts[self.node]

    @property
    def iterations(self) -> int:
        """Of all nodes, as far as it is known here."""
        return sum(count.iterations for count in self.counts.values())

    @property
    def sent(self) -> int:
        """Bytes sent by all nodes, as far as it is known here."""
        return sum(count.sent for count in self.counts.values())

    def add(self, iterations: int = 0, sent: int = 0, done: bool = False) -> None:
        """Count something of this node's own."""
        own = self.own
        self.counts[self.node] = Count(own.iterations + iterations, own.sent + sent, own.done or done)

    def encode(self, rng: random.Random) -> bytes:
        """What to tell a neighbour: oneself, and of the others as many as fit."""
        others = [node for node in self.counts if node != self.node]
        if len(others) >= ENTRIES_AT_MOST:
            others = rng.sample(others, ENTRIES_AT_MOST - 1)
        return b"".join(_ENTRY.pack(node, *self.counts[node]) for node in (self.node, *others))

    def hear(self, note: bytes) -> None:
        """Merge what a neighbour tells; nonsense is passed over.

        What it remembers of this node's own life before a restart counts too, or the total would go back.
        """
        if len(note) % _ENTRY.size:
            return
        for node, iterations, sent, done in _ENTRY.iter_unpack(note):
            if node >= self.nodes:
                continue
            known = self.counts.get(node, Count())
            finished = known.done if node == self.node else known.done or bool(done)
            self.counts[node] = Count(max(known.iterations, iterations), max(known.sent, sent), finished)
