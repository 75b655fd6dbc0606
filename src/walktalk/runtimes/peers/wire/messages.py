"""What goes over the wire: a header of exactly 64 bytes, a note, and a payload: a model, or a codec's form of it.

    message:  header (64 bytes) | note | payload (a model: float32, little-endian)
    chunk:    frame (32 bytes)  | a piece of the message

A message is what the simulator counts, `control_bytes(message)` plus the payload. It travels in chunks, because one
transfer of 500 MB would block its connection, and because sender, network and receiver can then work at the same time.
A chunk's frame says which message it is part of and carries a checksum; it belongs to the transport, like TCP's own
headers. Everything is read with fixed layouts and checked against a schema: nothing that arrives is ever executed,
unpickled, or used as a size before it has been compared with a limit.
"""

from __future__ import annotations

import collections
import functools
import re
import struct
import weakref
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from walktalk.core.errors import WalktalkError
from walktalk.protocols import HEADER_BYTES, NOTE_BYTES, Message
from walktalk.transforms.codecs import Bytes

Buffer: TypeAlias = bytes | bytearray | memoryview

CHUNK_BYTES = 512 * 1024
"""The largest piece of a message in one chunk. Measured on loopback: 256 KiB to 512 KiB is the best size for 1 MB and
for 500 MB alike; at 1 MiB every chunk costs fresh pages from the kernel, at 64 KiB Python's overhead a chunk shows."""

_HEADER = struct.Struct("<2sBB26sIIIIIHQI")
_MAGIC, _VERSION = b"WT", 2
_HAS_PAYLOAD = 1
LONGEST_KIND = 26  # characters
LARGEST = (
    2**31 - 1
)  # of the numbers in a message: whoever counts on from there has as many again until the field is full
_FRAME = struct.Struct("<4sQIIIQ")
_FRAME_MAGIC = b"wtc1"
_ACK = struct.Struct("<4sQIIQ")
_ACK_MAGIC = b"wta2"
FRAME_BYTES = _FRAME.size
_ROW = 512  # words: a page. A page that changes its place changes the sum, a swap within one does not.

_KIND = re.compile(rb"[a-z][a-z0-9_-]*")

assert _HEADER.size == HEADER_BYTES


class WireError(WalktalkError):
    """Bytes from a peer that are not a message. Never shown to a user: counted by `reason`, logged and dropped."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class Parcel(NamedTuple):
    """A message with its address: all that the header and the note hold."""

    sender: int  # node numbers
    receiver: int
    message: Message
    payload: int = -1  # bytes of what goes along; -1 when nothing does

    @property
    def body_bytes(self) -> int:
        """Bytes of note and payload, after the header."""
        return len(self.message.note) + max(self.payload, 0)


class Stamp(NamedTuple):
    """Which message of which incarnation of the sender: what tells a new message from a replayed one."""

    incarnation: int  # grows with every start of the sending process
    number: int  # counts its messages to this receiver from 1


class Frame(NamedTuple):
    """A chunk's place in its message."""

    stamp: Stamp
    piece: int  # counted from 0
    pieces: int  # of the whole message


class Answer(IntEnum):
    """What the two sides of a link say about a message."""

    ASKED = 0  # the sender: how far is it?
    TAKEN = 1  # the receiver: my node has it
    WAITING = 2  # it is arriving, or it waits for my node
    UNKNOWN = 3  # never heard of it: send it again
    BACK_SOON = 4  # of no message: whoever says so opens its connections anew, and is back in a moment
    OUTLIVED = 5  # of no message: a node of your name and of this incarnation, a later one, is listened to


class Ack(NamedTuple):
    """An answer about a message, or the question."""

    stamp: Stamp
    answer: Answer
    incarnation: int = 0  # of whoever says so: of two nodes of one name, one is listened to


def encode_header(parcel: Parcel) -> bytes:
    """Write the header and the note of a message."""
    message = parcel.message
    kind = message.kind.encode()
    if not _KIND.fullmatch(kind) or len(kind) > LONGEST_KIND:
        raise ValueError(f"kind {message.kind!r}: at most {LONGEST_KIND} characters a-z, 0-9, _ and -")
    flags = _HAS_PAYLOAD if parcel.payload >= 0 else 0
    numbers = (parcel.sender, parcel.receiver, message.walk, message.round, message.term, len(message.note))
    fields = (_MAGIC, _VERSION, flags, kind, *numbers, max(parcel.payload, 0))
    head = _HEADER.pack(*fields, 0)[:-4]
    return head + zlib.crc32(message.note, zlib.crc32(head)).to_bytes(4, "little") + message.note


def decode_header(data: Buffer) -> Parcel:
    """Read the header and the note; `WireError` if they are not exactly as they should be."""
    if len(data) < HEADER_BYTES:
        raise WireError("truncated", f"{len(data)} bytes, a header has {HEADER_BYTES}")
    fields = _HEADER.unpack_from(data)
    magic, version, flags, kind, sender, receiver, walk, round_, term, note_length, payload, check = fields
    if magic != _MAGIC or version != _VERSION or flags not in (0, _HAS_PAYLOAD):
        raise WireError("malformed", f"starts with {bytes(data[:4])!r}")
    if len(data) < HEADER_BYTES + note_length:
        raise WireError("truncated", f"note of {note_length} bytes, {len(data) - HEADER_BYTES} came")
    note = bytes(data[HEADER_BYTES : HEADER_BYTES + note_length])
    if zlib.crc32(note, zlib.crc32(data[: HEADER_BYTES - 4])) != check:
        raise WireError("checksum", "header")
    if payload and not flags:
        raise WireError("malformed", "a payload's length without a payload")
    if max(walk, round_, term) > LARGEST:
        raise WireError("malformed", f"walk {walk}, round {round_}, term {term}; at most {LARGEST}")
    message = Message(_text(kind, _KIND, "kind"), walk, round_, term, note)
    return Parcel(sender, receiver, message, payload if flags else -1)


def chunks(parcel: Parcel, payload: Buffer | None, stamp: Stamp, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Cut a message into equal pieces, each made when it is asked for, so that no second copy of a model exists."""
    body = memoryview(payload).cast("B") if payload is not None else memoryview(b"")
    if len(body) != max(parcel.payload, 0):
        raise ValueError(f"a payload of {len(body)} bytes, the header says {parcel.payload}")
    head = encode_header(parcel)
    count = max(1, -(-(len(head) + len(body)) // chunk_bytes))
    size = -(-(len(head) + len(body)) // count)
    taken = max(0, size - len(head))  # a long note may fill the first chunk and more: it is never split
    yield _chunk(Frame(stamp, 0, count), head, body[:taken])
    for index in range(1, count):
        yield _chunk(Frame(stamp, index, count), b"", body[taken : taken + size] if index + 1 < count else body[taken:])
        taken += size


def open_chunk(data: bytes) -> tuple[Frame, memoryview]:
    """Read a chunk's frame and its piece of the message, and verify the checksum."""
    if len(data) < FRAME_BYTES:
        raise WireError("truncated", f"{len(data)} bytes, a frame has {FRAME_BYTES}")
    magic, incarnation, number, index, count, check = _FRAME.unpack_from(data)
    if magic != _FRAME_MAGIC or index >= count:
        raise WireError("malformed", f"frame {bytes(data[:4])!r}, piece {index} of {count}")
    frame, piece = Frame(Stamp(incarnation, number), index, count), memoryview(data)[FRAME_BYTES:]
    if checksum(frame, (piece,)) != check:
        raise WireError("checksum", f"piece {index} of {count}")
    return frame, piece


def checksum(frame: Frame, parts: tuple[Buffer, ...]) -> int:
    """A 64-bit sum over pages with odd weights, and the frame.

    It is there to catch mix-ups and damage in software; on the way TCP checks, and TLS authenticates, every byte. At
    sixty times the speed of CRC-32 it costs 2 % of a hop, not half of it.
    """
    total = zlib.crc32(_FRAME.pack(_FRAME_MAGIC, *frame.stamp, frame.piece, frame.pieces, 0))
    for part in parts:
        total = (total * 0x9E3779B97F4A7C15 + _sum_pages(part)) % (1 << 64)
    return total


def encode_ack(ack: Ack) -> bytes:
    """The stamp, the answer and the incarnation of whoever says so, in 28 bytes."""
    return _ACK.pack(_ACK_MAGIC, *ack.stamp, int(ack.answer), ack.incarnation)


def decode_ack(data: bytes) -> Ack:
    """Read an acknowledgement; `WireError` if it is none."""
    if len(data) != _ACK.size:
        raise WireError("malformed", f"an acknowledgement of {len(data)} bytes")
    magic, incarnation, number, answer, own = _ACK.unpack(data)
    if magic != _ACK_MAGIC or answer > max(Answer):
        raise WireError("malformed", f"acknowledgement {data!r}")
    return Ack(Stamp(incarnation, number), Answer(answer), own)


def _chunk(frame: Frame, head: bytes, body: memoryview) -> bytes:
    piece = (b"".join((head, body)),) if head else (body,)
    packed = _FRAME.pack(_FRAME_MAGIC, *frame.stamp, frame.piece, frame.pieces, checksum(frame, piece))
    return b"".join((packed, *piece))


def _sum_pages(part: Buffer) -> int:
    words = len(part) // 8
    tail = int.from_bytes(bytes(part[words * 8 :]), "little") * 0x2545F4914F6CDD1D + len(part)
    array = np.frombuffer(part, dtype="<u8", count=words)
    whole = words // _ROW * _ROW
    rows = np.add.reduce(array[:whole].reshape(-1, _ROW), axis=1)
    return int(np.dot(rows, _weights(len(rows)))) + int(np.add.reduce(array[whole:])) * (2 * len(rows) + 1) + tail


@functools.lru_cache(maxsize=8)
def _weights(rows: int) -> npt.NDArray[np.uint64]:
    """1, 3, 5, …: odd, so that no change of a page is multiplied away."""
    return np.arange(1, 2 * rows + 1, 2, dtype=np.uint64)


def _text(field: bytes, pattern: re.Pattern[bytes], name: str) -> str:
    text = field.rstrip(b"\0")
    if not pattern.fullmatch(text):
        raise WireError("malformed", f"{name} {field!r}")
    return text.decode("ascii")


# -- Putting a neighbour's chunks together again, within limits -------------------------------------------------------
#
# One `Assembler` for each neighbour and channel. A neighbour sends one message at a time and the next when the last is
# acknowledged, so it can occupy two models of memory here at most: one that is arriving, one that is waiting for the
# node. Whatever does not fit this (a damaged, oversized, repeated or uncalled-for chunk, or too many of them) raises
# `WireError` and leaves the state as it was, or with the arriving message thrown away.


@dataclass(frozen=True)
class Limits:
    """What a neighbour may send."""

    payloads: Mapping[str, frozenset[int]]  # kind -> bytes that may come with such a message; of others nothing may
    note_bytes: int = NOTE_BYTES  # the longest note
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
