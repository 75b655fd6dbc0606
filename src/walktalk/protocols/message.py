"""What nodes say to each other: a kind, a few small numbers, and perhaps a model beside them."""

from __future__ import annotations

from typing import NamedTuple

HEADER_BYTES = 64
"""Bytes of every message on the wire before the model: kind, sender, receiver, the numbers below, lengths, checksum.

The simulator counts them as sent, and the real runtime's encoding fits in them exactly.
"""


class Message(NamedTuple):
    """The small part of a message. What a kind does not need stays 0."""

    kind: str  # what it is about, e.g. "walk", "offer", "answer"
    walk: int = 0  # the walk it concerns
    round: int = 0  # the round, exchange or generation it belongs to
    term: int = 0  # the election term in which it was sent
    note: bytes = b""  # anything longer, already encoded; counted by its length


class Arrival(NamedTuple):
    """How messages of one kind arrive; a protocol declares one for each kind that it sends.

    Nothing else is let in: a message of another kind, with a model where none belongs, or encoded in another way is
    refused before the machine sees it, and no slot is written before the machine has taken the message.
    """

    slot: str = ""  # where what comes with it is put, such as "offer/{sender}"; "": nothing comes with it
    # {sender}, {walk} and {round} of the message are filled in.
    codec: str = ""  # what comes is encoded by this codec; "": a model as it is
    once: bool = False  # what comes is mixed in once at most; the ledger checks it
    latest: bool = False  # only the last one for each receiver and walk counts: an earlier one that still waits is void

    def slot_of(self, sender: int, message: Message) -> str:
        """The slot in which this message's model is put."""
        return self.slot.format(sender=sender, walk=message.walk, round=message.round)


def control_bytes(message: Message) -> int:
    """Bytes that the message takes on the wire without its model."""
    return HEADER_BYTES + len(message.note)
