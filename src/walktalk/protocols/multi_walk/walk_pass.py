"""What a walk carries beside its model, so that no update is counted twice and no hop is taken twice.

Every time the aggregator lets a walk go, it writes a *ticket* on it, higher than the last, and none that another walk
ever has. It accepts a returning walk only with the ticket that it wrote last; a second copy of the walk (the sender
believed the receiver dead, and sent it elsewhere) carries a ticket that is used up, and is retired. The reign says
which aggregator wrote the ticket; hops are counted from there, so that a message that was sent twice is recognized.
Luggage comes in messages of its own, which say with which copy they belong.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from walktalk.protocols.message import Message
from walktalk.protocols.multi_walk.visits import NOTHING, Carried, carried_in

WALK = "walk"
ACK = "ack"
NO_REIGN = (0, -1)  # of a fork: no aggregator knows of it yet

_NOTE = struct.Struct("<iII")
_LABEL = struct.Struct("<IiII")
LARGEST = 2**31 - 1  # hop or generation that is believed: counted on from there, the field is not full for long


class Pass(NamedTuple):
    """One copy of a walk, at one point of its way."""

    walk: int
    reign: tuple[int, int]  # term and node of the aggregator that wrote the ticket
    ticket: int
    hop: int = 0  # since the ticket was written
    generation: int = 0  # how often the walk was started again
    carried: Carried = NOTHING

    @property
    def place(self) -> tuple[tuple[int, int], int, int]:
        """What tells two copies apart, in the order of their ways."""
        return self.reign, self.ticket, self.hop

    def moved(self) -> Pass:
        """One hop further."""
        return self._replace(hop=min(self.hop + 1, LARGEST))

    def message(self, kind: str) -> Message:
        """A message about this copy."""
        term, leader = self.reign
        note = _NOTE.pack(leader, self.hop, self.generation)
        return Message(kind, walk=self.walk, round=self.ticket, term=term, note=note + self.carried.encode())

    @property
    def label(self) -> bytes:
        """What is written on its luggage."""
        return _LABEL.pack(*self.reign, self.ticket, self.hop)

    def luggage(self, kind: str) -> Message:
        """The message that brings one kind of its luggage; it has no number of a walk, for nothing else goes along."""
        return Message(kind, round=self.walk, term=self.reign[0], note=self.label)


def ticket_after(last: int, walk: int, walks: int) -> int:
    """The next one: no two walks ever have the same, so none can be passed off as another.

    - `last`: the walk's last ticket, 0 where there was none.
    - `walk`, `walks`: which it is, and how many there are.
    """
    return last + 1 + (walk - last - 1) % walks


def is_ticket_of(ticket: int, walk: int, walks: int) -> bool:
    """Whether it can be this walk's; 0 is everybody's, before the first visit."""
    return not ticket or (ticket - walk) % walks == 0


def pass_of(message: Message) -> Pass:
    """The pass in a message; `ValueError` where there is none."""
    try:
        leader, hop, generation = _NOTE.unpack_from(message.note)
    except struct.error as error:
        raise ValueError(f"not a pass: {error}") from error
    if leader < NO_REIGN[1] or max(hop, generation) > LARGEST:
        raise ValueError(f"not a pass: of node {leader}, hop {hop}, generation {generation}")
    carried = carried_in(message.note[_NOTE.size :])
    return Pass(message.walk, (message.term, leader), message.round, hop, generation, carried)


def answer_to(what: Pass) -> Message:
    """The acknowledgement of a copy."""
    return what._replace(carried=NOTHING).message(ACK)
