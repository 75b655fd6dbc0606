"""A node that sends forged messages, under its own name and with valid stamps: they reach the protocol.

They are made of what it has truly said: the same message again later; with one of its numbers, or a word of its
note, replaced by an extreme one (tickets, terms, hops, counts, clocks, claims that nobody made); or with numbers in its
model that are none, or enormous. Nothing here is a model that is finite, of the usual size, and bad: from that only a
`screen` protects.

The trace says what went along with a forged message: a node that takes an old model for a new one goes on from there,
and whoever asks later which updates are in the model must know from where. So the trace keeps a copy of each model
that is said while the node forges, in slots that only the trace has.
"""

from __future__ import annotations

import random
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from walktalk.protocols import Message, Send
from walktalk.runtimes.peers import Node, Parcel, Stamp
from walktalk.runtimes.semantics import Packed
from walktalk.transforms.codecs import Bytes

FORGES = "forges"
"""A file in a node's folder: while it is there, the node forges."""

A_SECOND = 40  # forged messages
LOOK_EVERY = 0.2  # seconds, at the file
REMEMBERED = 60  # true messages that forged ones are made of
KIND = "forged"  # of message, in the trace: what a forger repeats is not the protocol's to count
NUMBERS = (0, 1, 3, 1000, 2**16, 2**31 - 1, 2**31, 2**32 - 1)
DEEP = zlib.compress(b"[" * 700 + b"]" * 700)
"""A note that is nested deeper than anybody reads."""
BAD = (np.nan, np.inf, -np.inf, 1e30, 3e6)


class Said(NamedTuple):
    """Something that a node has said."""

    parcel: Parcel
    payload: Bytes | None  # its model
    slot: str = ""  # where the trace has a copy of that; "": nowhere


def forged(rng: random.Random, said: Sequence[Said]) -> Said:
    """Makes a forged message of one of these."""
    parcel, payload, slot = rng.choice(said)
    what = rng.choice(("again", "number", "word", "model", "empty", "deep"))
    if what == "number":
        most = len(NUMBERS) if payload is None else -2  # a model must get through the wire, or it blocks its sender
        number: dict[str, Any] = {rng.choice(("walk", "round", "term")): rng.choice(NUMBERS[:most])}
        parcel = parcel._replace(message=parcel.message._replace(**number))
    elif what == "word" and len(parcel.message.note) >= 4:
        parcel = parcel._replace(message=_with_another_word(rng, parcel.message))
    elif what == "model" and payload is not None:
        payload = spoiled(rng, payload)
    elif what == "empty":
        parcel = parcel._replace(message=parcel.message._replace(note=b""))
    elif what == "deep":  # as a note of the protocol's, and as one of those between nodes
        kind = rng.choice((parcel.message.kind, "hello", "roster")) if payload is None else parcel.message.kind
        parcel = parcel._replace(message=parcel.message._replace(kind=kind, note=DEEP))
    return Said(parcel, payload, slot)


def spoiled(rng: random.Random, payload: Bytes) -> Bytes:
    """A model of the same size with numbers that are none, or enormous: in one place, or in all."""
    bad = payload.copy()
    model = bad[: len(bad) // 4 * 4].view("<f4")
    model[rng.randrange(len(model)) if rng.random() < 0.5 else slice(None)] = rng.choice(BAD)
    return bad


def _with_another_word(rng: random.Random, message: Message) -> Message:
    note, at = bytearray(message.note), 4 * rng.randrange(len(message.note) // 4)
    note[at : at + 4] = struct.pack("<I", rng.choice(NUMBERS))
    return message._replace(note=bytes(note))


class Forger:
    """A thread beside a node. What it makes is sent by the node's own loop, as all that the node says."""

    def __init__(self, node: Node, file: Path) -> None:
        """file: while it is there, the node forges."""
        self.node, self.file = node, file
        self.said: deque[Said] = deque(maxlen=REMEMBERED)
        self.rng = random.Random(node.models.me)
        self._send = node.link.send
        node.link.send = self._listen  # type: ignore[method-assign]
        self._sent, self._copies = node.models.interpreter.sent, count()
        node.models.interpreter.sent = self._written  # type: ignore[method-assign]

    def start(self) -> None:
        """Look at the file from now on."""
        threading.Thread(target=self._run, name="forger", daemon=True).start()

    def _listen(self, parcel: Parcel, payload: Bytes | None) -> Stamp:
        """What the node says is sent, and remembered while it forges."""
        if self.file.exists():
            self.said.append(Said(parcel, None if payload is None else payload.copy()))
        return self._send(parcel, payload)

    def _written(self, node: int, effect: Send, packed: Packed, number: int, key: int = 0) -> int:
        """What was said is in the trace; where it may be said again, so is a copy of its model."""
        size, what = self._sent(node, effect, packed, number, key), self.node.models.interpreter
        last = self.said[-1] if self.said else None
        if last is not None and last.parcel.message is effect.message and effect.slot in what.slots[node]:
            slot = f"said/{next(self._copies) % REMEMBERED}"
            what.note_down(node, "combine", slot, detail={effect.slot: 1.0})
            self.said[-1] = last._replace(slot=slot)
        return size

    def _run(self) -> None:
        while True:
            time.sleep(1 / A_SECOND if self.file.exists() else LOOK_EVERY)
            if self.file.exists():
                self.node.events.put(self._forge)

    def _forge(self) -> None:
        if self.said and self.node.state.begun and self.node.state.alive:
            (_, _, message, size), payload, slot = forged(self.rng, self.said)
            me, what, to = (
                self.node.models.me,
                self.node.models.interpreter,
                self.rng.choice(sorted(self.node.state.alive)),
            )
            life, number = self._send(Parcel(me, to, message, size), payload)
            if slot:
                told = {"kind": KIND, "into": what.arrives_in(me, message)}
                what.note_down(me, "send", slot, peer=to, walk=message.walk, number=number, key=life, detail=told)
