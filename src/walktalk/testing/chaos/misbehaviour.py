"""Nodes that do not do what they should, switched on and off by files in their folders while they run.

stalls    its trainings hang, as on a GPU that is gone, and go on when the file goes
deaf      its link acknowledges nothing
mute      its link takes models, and its algorithm never hears of them
counts    it says that it has trained and sent beyond measure, and that the run is over
lives     it says to all its neighbours that later lives of them are heard
misleads  it answers operators with what is no answer

A node knows nothing of this: its parts are wrapped from outside, each with what it needs.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from walktalk.protocols import Effect, Event, Received
from walktalk.runtimes.peers import (
    ACKS,
    OPERATOR,
    Ack,
    Answer,
    Connections,
    Delivery,
    Link,
    Node,
    Stamp,
    Word,
    encode_ack,
    packed_count,
)

STALLS, DEAF, MUTE, FALSE_COUNTS, MISLEADS = "stalls", "deaf", "mute", "counts", "misleads"
FALSE_LIVES = "lives"
LOOK_EVERY = 0.1  # seconds, at the file, while a training hangs
LIE_EVERY = 0.5  # seconds, about lives
MANY = 10**12  # trainings, and bytes, of one that lies
HEAD = 8  # bytes before the counts
DEPTH = 5000  # of an answer that is nested
ANSWERS = (
    b"",
    b"[]",
    b'[["x"]]',
    b"{",
    b"null",
    b"\xff\xfe",
    b'{"roster": [["x"]], "alive": "many", "iterations": -1e400, "walks": {"a": 1}, "complaints": 7}',
    b'{"files": {"copy.safetensors": 9007199254740993}, "others": {"node-0": [1e99, -1]}, "copy": [[]]}',
    b"[" * DEPTH,
    json.dumps({"name": "\x1b[2J" * 99, "state": None, "neighbours": [1], "aggregates": "yes"}).encode(),
)
"""What one that misleads operators answers, in turn."""


Reply: TypeAlias = Callable[[Mapping[str, str]], bytes]


class Misbehaviour:
    """Wraps the parts of a node that has not begun yet."""

    def __init__(self, node: Node) -> None:
        self._folder = node.setup.folder
        self._hang_in(node.training.queue._thread)
        self._wrap_ears(node)
        self._count_falsely_in(node)
        threading.Thread(target=self._lie_about_lives_of, args=(node.link,), name="lives", daemon=True).start()

    def _is(self, name: str) -> bool:
        return (self._folder / name).exists()

    def _hang_in(self, thread: Any) -> None:
        train = thread._train

        def hang(work: Any) -> Any:
            while self._is(STALLS):
                time.sleep(LOOK_EVERY)
            return train(work)

        thread._train = hang

    def _wrap_ears(self, node: Node) -> None:
        acknowledge, handle = node.link.acknowledge, node.runner.handle

        def silent(delivery: Delivery) -> None:
            if not self._is(DEAF):
                acknowledge(delivery)

        def overhear(event: Event) -> list[Effect]:
            return [] if isinstance(event, Received) and event.slot and self._is(MUTE) else handle(event)

        node.link.acknowledge = silent  # type: ignore[method-assign]
        node.runner.handle = overhear  # type: ignore[method-assign]

    def _count_falsely_in(self, node: Node) -> None:
        tally = node.progress.tally
        encode = tally.encode

        def false(clock: float, rng: random.Random, lengths: bool = False) -> bytes:
            told = encode(clock, rng, lengths)
            if not self._is(FALSE_COUNTS):
                return told
            own = tally.own._replace(iterations=MANY, sent=MANY, done=True, over=True)
            return told[:HEAD] + Word(packed_count(tally.node, own)).packed(lengths)

        tally.encode = false  # type: ignore[method-assign]

    def _lie_about_lives_of(self, link: Link) -> None:
        while not link.connections.closed:
            time.sleep(LIE_EVERY)
            for peer in link.endpoint.neighbours.values() if self._is(FALSE_LIVES) else ():
                later = Ack(Stamp(time.time_ns(), 0), Answer.OUTLIVED)
                link.connections.say(peer, ACKS, encode_ack(later))


def mislead_operators(folder: Path) -> None:
    """Have every node of this process answer operators with nonsense, while the file is there."""
    answer, nonsense = Connections.answer, itertools.cycle(ANSWERS)

    def wrapped(self: Connections, question: str, reply: Reply, asker: str = OPERATOR) -> None:
        def misleading(asked: Mapping[str, str]) -> bytes:
            return next(nonsense) if (folder / MISLEADS).exists() else reply(asked)

        answer(self, question, misleading if asker == OPERATOR else reply, asker)

    Connections.answer = wrapped  # type: ignore[method-assign]
