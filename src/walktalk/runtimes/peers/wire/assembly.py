"""Putting a neighbour's chunks together again, within limits.

One `Assembler` for each neighbour and channel. A neighbour sends one message at a time and the next when the last is
acknowledged, so it can occupy two models of memory here at most: one that is arriving, one that is waiting for the
node. Whatever does not fit this (a damaged, oversized, repeated or uncalled-for chunk, or too many of them) raises
`WireError` and leaves the state as it was, or with the arriving message thrown away.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from walktalk.protocols import HEADER_BYTES
from walktalk.runtimes.peers.wire.messages import Frame, Parcel, Stamp, WireError, decode_header, open_chunk
from walktalk.transforms.codecs import Bytes


@dataclass(frozen=True)
class Limits:
    """What a neighbour may send."""

    payloads: Mapping[str, frozenset[int]]  # kind -> bytes that may come with such a message; of others nothing may
    note_bytes: int = 4096  # the longest note
    messages_per_second: float = 500.0  # a hop of 1 MB takes a millisecond or two, a heartbeat is rarer by far
    burst: int = 1000  # messages at once, after a silence


class Pool:
    """Memory for payloads that arrive, used again when nobody holds the payload any more.

    Fresh memory costs more than the copy into it: the kernel has to find and clear every page. What is handed out is an
    array of its own on memory of the pool, and everything that is made of it without a copy holds on to that array; so
    its end, which a weak reference tells of, is the end of all of them.

    Messages of several neighbours arrive in several threads, and payloads end in any: what deques do is safe there.
    """

    KEPT = 4  # one arriving, one waiting, one in training, one on its way out

    def __init__(self) -> None:
        self._free: dict[int, collections.deque[bytearray]] = {}  # by size

    def lend(self, size: int) -> Bytes:
        """Memory for so many bytes; their content is arbitrary."""
        try:
            room = self._free.setdefault(size, collections.deque(maxlen=self.KEPT)).pop()
        except IndexError:
            room = bytearray(size)
        lent = np.frombuffer(room, dtype=np.uint8)
        weakref.finalize(lent, self._give_back, room)
        return lent

    def _give_back(self, room: bytearray) -> None:
        self._free[len(room)].append(room)


@dataclass
class Delivery:
    """A whole message from a neighbour."""

    parcel: Parcel
    payload: Bytes | None
    stamp: Stamp


@dataclass
class _Arriving:
    parcel: Parcel
    payload: Bytes | None
    room: memoryview  # what is still to be written of it
    frame: Frame  # of the last chunk


class OutlivedError(WireError):
    """A message of an incarnation that is over: another of the same name has been heard since."""


class Assembler:
    """Puts the chunks of one neighbour together into whole messages, within limits."""

    def __init__(self, sender: int, receiver: int, limits: Limits, pool: Pool, models: bool = True) -> None:
        self.sender, self.receiver, self.limits, self.pool = sender, receiver, limits, pool
        self.models = models  # whether a payload may come this way
        self.last = Stamp(0, 0)  # the last message that came whole
        self.incarnation = 0  # the sender's latest of which a message came whole, on this channel or another
        self._arriving: _Arriving | None = None
        self._allowance, self._filled_at = float(limits.burst), 0.0

    @property
    def arriving(self) -> Stamp | None:
        """The message of which a part is here."""
        return self._arriving.frame.stamp if self._arriving is not None else None

    def abandon(self) -> None:
        """The connection broke: the rest of what is arriving will not come, and its sender is told so when it asks."""
        self._arriving = None

    def add(self, data: bytes, now: float) -> Delivery | None:
        """Add a chunk; the message, when this was its last one."""
        frame, piece = open_chunk(data)
        if frame.stamp.incarnation < self.incarnation:
            raise OutlivedError("replayed", f"message {frame.stamp}, and there was one of {self.incarnation}, later")
        if frame.stamp <= self.last:
            raise WireError("replayed", f"message {frame.stamp} after {self.last}")
        if frame.piece == 0:
            self._spend(now)
            self._arriving = self._begin(frame, piece)
        else:
            self._continue(frame, piece)
        return self._finish() if frame.piece + 1 == frame.pieces else None

    def _begin(self, frame: Frame, piece: memoryview) -> _Arriving:
        self._arriving = None  # the sender began anew: the rest of the message before will not come
        parcel = decode_header(piece)
        self._check(parcel)
        payload = self.pool.lend(parcel.payload) if parcel.payload >= 0 else None
        room = payload.data if payload is not None and payload.size else memoryview(bytearray())
        arriving = _Arriving(parcel, payload, room, frame)
        self._write(arriving, piece[HEADER_BYTES + len(parcel.message.note) :])
        return arriving

    def _continue(self, frame: Frame, piece: memoryview) -> None:
        arriving, self._arriving = self._arriving, None
        if arriving is None:
            raise WireError("truncated", f"piece {frame.piece} of a message whose beginning is missing")
        before = arriving.frame
        if frame != before._replace(piece=before.piece + 1):
            raise WireError("truncated", f"piece {frame.piece} of {frame.stamp} after piece {before.piece}")
        self._write(arriving, piece)
        arriving.frame = frame
        self._arriving = arriving

    def _finish(self) -> Delivery:
        arriving, self._arriving = self._arriving, None
        assert arriving is not None
        if len(arriving.room):
            raise WireError("truncated", f"{len(arriving.room)} bytes of the payload did not come")
        self.last = arriving.frame.stamp
        self.incarnation = max(self.incarnation, self.last.incarnation)
        return Delivery(arriving.parcel, arriving.payload, self.last)

    def _write(self, arriving: _Arriving, piece: memoryview) -> None:
        if len(piece) > len(arriving.room):
            self._arriving = None
            raise WireError("oversized", f"{len(piece) - len(arriving.room)} bytes more than the header says")
        arriving.room[: len(piece)] = piece
        arriving.room = arriving.room[len(piece) :]

    def _check(self, parcel: Parcel) -> None:
        if (parcel.sender, parcel.receiver) != (self.sender, self.receiver):
            raise WireError("forged", f"{self.sender} to {self.receiver}, says {parcel.sender} to {parcel.receiver}")
        if len(parcel.message.note) > self.limits.note_bytes:
            raise WireError("oversized", f"a note of {len(parcel.message.note)} bytes")
        if parcel.payload < 0:
            return
        if not self.models:
            raise WireError("oversized", "a payload among the control messages")
        allowed = self.limits.payloads.get(parcel.message.kind, frozenset())
        if parcel.payload not in allowed:
            reason = "oversized" if parcel.payload > max(allowed, default=0) else "malformed"
            raise WireError(reason, f"{parcel.payload} bytes with a message {parcel.message.kind!r}")

    def _spend(self, now: float) -> None:
        """A leaky bucket: `messages_per_second` in the long run, `burst` at once."""
        limits = self.limits
        earned = max(0.0, now - self._filled_at) * limits.messages_per_second
        self._allowance, self._filled_at = min(limits.burst, self._allowance + earned), now
        if self._allowance < 1.0:
            raise WireError("rate", f"more than {limits.messages_per_second:g} messages/s")
        self._allowance -= 1.0
