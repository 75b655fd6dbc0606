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

import functools
import re
import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from walktalk.core.errors import WalktalkError
from walktalk.protocols import HEADER_BYTES, Message

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
