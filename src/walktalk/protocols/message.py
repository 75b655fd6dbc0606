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


def control_bytes(message: Message) -> int:
    """Bytes that the message takes on the wire without its model."""
    return HEADER_BYTES + len(message.note)
