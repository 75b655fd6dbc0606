"""Putting a neighbour's chunks together again, within limits.

One `Assembler` for each neighbour and channel. A neighbour sends one message at a time and the next when the last is
acknowledged, so it can occupy two models of memory here at most: one that is arriving, one that is waiting for the
node. Whatever does not fit this (a damaged, oversized, repeated or uncalled-for chunk, or too many of them) raises
`WireError` and leaves the state as it was, or with the arriving message thrown away.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from walktalk.protocols import HEADER_BYTES
from walktalk.runtimes.peers.wire import FLOAT_BYTES, Frame, Parcel, Stamp, WireError, decode_header, open_chunk

Floats: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Limits:
    """What a neighbour may send."""

    width: int  # parameters of a model in this study: no other size is a model
    state_width: int = 0  # of the optimizer state that may travel behind a model
    note_bytes: int = 4096  # the longest note
    messages_per_second: float = 500.0  # a hop of 1 MB takes a millisecond or two, a heartbeat is rarer by far
    burst: int = 1000  # messages at once, after a silence


class Pool:
    """Memory for models that arrive, used again when nobody holds the model any more.

    Fresh memory costs more than the copy into it: the kernel has to find and clear every page.
    """

    KEPT = 4  # one arriving, one waiting, one in training, one on its way out

    def __init__(self) -> None:
        self._made: list[Floats] = []

    def take(self, width: int) -> Floats:
        """Room for a model of this size; its content is arbitrary."""
        for room in self._made:
            if room.size == width and sys.getrefcount(room) == 3:  # the list, `room`, and the question itself
                return room
        room = np.empty(width, dtype="<f4")
        if len(self._made) < self.KEPT:
            self._made.append(room)
        return room


@dataclass
class Delivery:
    """A whole message from a neighbour."""

    parcel: Parcel
    model: Floats | None
    stamp: Stamp


@dataclass
class _Arriving:
    parcel: Parcel
    model: Floats | None
    room: memoryview  # what is still to be written of the model
    frame: Frame  # of the last chunk


class Assembler:
    """Chunks of one neighbour in, whole messages out."""

    def __init__(self, sender: int, receiver: int, limits: Limits, pool: Pool, models: bool = True) -> None:
        self.sender, self.receiver, self.limits, self.pool = sender, receiver, limits, pool
        self.models = models  # whether a model may come this way
        self.last = Stamp(0, 0)  # the last message that came whole
        self._arriving: _Arriving | None = None
        self._allowance, self._filled_at = float(limits.burst), 0.0

    @property
    def arriving(self) -> Stamp | None:
        """The message of which a part is here."""
        return self._arriving.frame.stamp if self._arriving is not None else None

    def add(self, data: bytes, now: float) -> Delivery | None:
        """Take a chunk; the message, when this was its last one."""
        frame, piece = open_chunk(data)
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
        model = self.pool.take(parcel.width) if parcel.width >= 0 else None
        room = model.data.cast("B") if model is not None and model.size else memoryview(bytearray())
        arriving = _Arriving(parcel, model, room, frame)
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
            raise WireError("truncated", f"{len(arriving.room)} bytes of the model did not come")
        self.last = arriving.frame.stamp
        return Delivery(arriving.parcel, arriving.model, self.last)

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
        if parcel.width >= 0 and not self.models:
            raise WireError("oversized", "a model among the control messages")
        largest = self.limits.width + self.limits.state_width
        if parcel.width not in (-1, self.limits.width, largest):
            reason = "oversized" if parcel.width > largest else "malformed"
            raise WireError(reason, f"a model of {parcel.width} parameters ({parcel.width * FLOAT_BYTES} bytes)")

    def _spend(self, now: float) -> None:
        """A leaky bucket: `messages_per_second` in the long run, `burst` at once."""
        limits = self.limits
        earned = max(0.0, now - self._filled_at) * limits.messages_per_second
        self._allowance, self._filled_at = min(limits.burst, self._allowance + earned), now
        if self._allowance < 1.0:
            raise WireError("rate", f"more than {limits.messages_per_second:g} messages/s")
        self._allowance -= 1.0
