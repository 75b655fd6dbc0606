"""Pairwise exchanges that change both sides or neither, though messages and nodes are lost.

An exchange has a number. The passive side applies its half when the offer comes, and keeps the model that it answered
with until the same neighbour's next offer; an offer that comes again gets the same answer again and is not applied
again. The active side's half is a difference, so it can be added at any later time: while no answer is here it keeps
what it offered, trains on, and asks again now and then. So after any losses both have changed as soon as one message
gets through each way, or neither has; only the death of one side leaves it open, and then the dead one's model is out
of the mean anyway. What is open or answered is remembered with the checkpoint (`keepsake`), so that one that comes back
goes on with the same exchange, and does not take the same offer twice. New exchanges belong to its new life, whose
numbers start again. There is at most one open exchange with each neighbour in each direction: a model of memory each.

A checkpoint may be older than the death. Then an exchange may be open in it that was over, which the other side knows:
it answers that the exchange is closed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from walktalk.protocols.arrivals import MOST_DOUBLINGS, Arrivals

OPEN, ANSWERED = 1, 2
_ENTRY = struct.Struct("<BIII")


@dataclass
class Exchange:
    """One that this node began and that is not answered yet."""

    life: int  # of this node, in which it began
    number: int
    since: float
    waiting: bool = True  # whether the node waits for it before it trains on, or, with overlap, offers anything else
    tries: int = 1


@dataclass
class Exchanges:
    """All exchanges of one node."""

    answers: Arrivals  # how long answers take
    begun: dict[int, Exchange] = field(default_factory=dict)  # by neighbour
    given: dict[int, tuple[int, int]] = field(default_factory=dict)  # neighbour -> life and number that were answered
    life: int = 0  # of this node: 0 from the start, something else after each return
    count: int = 0

    def begin(self, peer: int, now: float) -> Exchange:
        """A new exchange."""
        self.count += 1
        self.begun[peer] = exchange = Exchange(self.life, self.count, now)
        return exchange

    def answered(self, peer: int, life: int, number: int, now: float) -> Exchange | None:
        """An answer came; None where it is not one that is awaited."""
        exchange = self.begun.get(peer)
        if exchange is None or (life, number) != (exchange.life, exchange.number):
            return None
        if exchange.tries == 1:
            self.answers.observe(now - exchange.since)
        return self.begun.pop(peer)

    def keepsake(self) -> bytes:
        """What is open and what was answered last, by neighbour."""
        open_ = [(OPEN, peer, exchange.life, exchange.number) for peer, exchange in self.begun.items()]
        answered = [(ANSWERED, peer, life, number) for peer, (life, number) in self.given.items()]
        return b"".join(_ENTRY.pack(*entry) for entry in (*open_, *answered))

    def remember(self, memory: bytes, now: float) -> None:
        """An earlier life's keepsake; one that was torn says nothing."""
        if len(memory) % _ENTRY.size:
            return
        for what, peer, life, number in _ENTRY.iter_unpack(memory):
            if what == OPEN:
                self.begun[peer] = Exchange(life, number, now, waiting=False, tries=2)
            else:
                self.given[peer] = life, number

    def patience(self, peer: int) -> float:
        """How long to wait for this one before asking again."""
        return self.answers.patience * 2.0 ** min(self.begun[peer].tries - 1, MOST_DOUBLINGS)

    @property
    def awaited(self) -> bool:
        """Whether the node still waits for an answer."""
        return any(exchange.waiting for exchange in self.begun.values())
