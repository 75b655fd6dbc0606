"""How far everybody is, without anyone in charge: each node counts for itself, and neighbours tell each other.

A node's own numbers only grow, so what is heard is merged by taking the larger ones, whatever the order or the path
(a grow-only counter); what goes up and down, such as a loss, is taken from whoever knows the later one. The sum over
all nodes says when the run is over, within one round of gossip; and who has seen the end says so, and all believe it.
The run's clock goes along: a node that came back learns from it how long the run has lasted.
"""

from __future__ import annotations

import math
import random
import struct
import time
from dataclasses import dataclass
from typing import NamedTuple

KIND = "tally"
_HEAD = struct.Struct("<d")
_ENTRY = struct.Struct("<IQQBQfI")
_DONE, _OVER, _IDLE = 1, 2, 4
ENTRIES_AT_MOST = 110  # in one message, so that the note stays under 4 KiB; in larger networks a random choice
LATELY = 30_000  # milliseconds: who was not heard of for so long is not waited for


class Count(NamedTuple):
    """One node's numbers."""

    iterations: int = 0  # local trainings that it completed
    sent: int = 0  # bytes that it sent for the protocol
    done: bool = False  # it trains no more: it has seen the end, or leaves
    over: bool = False  # it has seen the end of the run
    idle: bool = False  # nothing that it holds will ever be trained again
    moment: int = 0  # when it said so, in milliseconds by its own clock; the later one is believed
    loss: float = math.nan  # of a model that came to it, on its own data, before it trained on it
    samples: int = 0  # of its data

    def merged(self, heard: Count) -> Count:
        """With what was heard of the same node."""
        newer = heard if heard.moment > self.moment else self
        return newer._replace(
            iterations=max(self.iterations, heard.iterations),
            sent=max(self.sent, heard.sent),
            done=self.done or heard.done,
            over=self.over or heard.over,
        )


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

    @property
    def over(self) -> bool:
        """Whether anybody has seen the end of the run."""
        return any(count.over for count in self.counts.values())

    @property
    def loss(self) -> float:
        """The training loss: the mean over all data of the losses that nodes measured last; NaN where one is missing.

        Nobody sees all the data, so this is the one number that a running cluster can know of its models.
        """
        there = self._heard_lately()
        samples = sum(count.samples for count in there)
        if 2 * len(there) <= self.nodes or not samples:
            return math.nan
        return sum(count.loss * count.samples for count in there) / samples

    @property
    def stalled(self) -> bool:
        """Whether nobody holds anything that will ever be trained again."""
        there = self._heard_lately()
        return 2 * len(there) > self.nodes and all(count.idle for count in there)

    def _heard_lately(self) -> list[Count]:
        now = _now()
        return [count for count in self.counts.values() if count.moment > now - LATELY and not count.done]

    def add(self, iterations: int = 0, sent: int = 0, done: bool = False, over: bool = False) -> None:
        """Count something of this node's own."""
        own = self.own
        self.counts[self.node] = own._replace(
            iterations=own.iterations + iterations, sent=own.sent + sent, done=own.done or done, over=own.over or over
        )

    def say(self, idle: bool, loss: float | None, samples: int) -> None:
        """How this node is right now."""
        said = math.nan if loss is None else loss
        self.counts[self.node] = self.own._replace(idle=idle, moment=_now(), loss=said, samples=samples)

    def encode(self, clock: float, rng: random.Random) -> bytes:
        """What to tell a neighbour: the run's clock, oneself, and of the others as many as fit."""
        others = [node for node in self.counts if node != self.node]
        if len(others) >= ENTRIES_AT_MOST:
            others = rng.sample(others, ENTRIES_AT_MOST - 1)
        return _HEAD.pack(clock) + b"".join(_pack(node, self.counts[node]) for node in (self.node, *others))

    def hear(self, note: bytes) -> float:
        """Merge what a neighbour tells, and give back its clock; nonsense is passed over.

        What it remembers of this node's own life before a restart counts too, or the total would go back.
        """
        if len(note) < _HEAD.size or (len(note) - _HEAD.size) % _ENTRY.size:
            return 0.0
        for node, iterations, sent, flags, moment, loss, samples in _ENTRY.iter_unpack(note[_HEAD.size :]):
            if node >= self.nodes:
                continue
            done, over, idle = bool(flags & _DONE), bool(flags & _OVER), bool(flags & _IDLE)
            known = self.counts.get(node, Count())
            if node == self.node:
                done, over, moment = known.done, known.over, 0
            heard = Count(iterations, sent, done, over, idle, moment, loss, samples)
            self.counts[node] = known.merged(heard)
        clock = float(_HEAD.unpack_from(note)[0])
        return clock if math.isfinite(clock) else 0.0


def _pack(node: int, count: Count) -> bytes:
    flags = _DONE * count.done | _OVER * count.over | _IDLE * count.idle
    return _ENTRY.pack(node, count.iterations, count.sent, flags, count.moment, count.loss, count.samples)


def _now() -> int:
    return time.time_ns() // 1_000_000
