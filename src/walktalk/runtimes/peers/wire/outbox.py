"""The models that wait to go to one neighbour: one on its way, the rest in line.

A thread sends, because sending blocks when the network is slow. It is started with the first model, so that a node of
a large graph does not keep a thread for every neighbour that it never sends to.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from walktalk.protocols import Message
from walktalk.runtimes.peers.wire.messages import Ack, Answer, Parcel, Stamp, chunks, encode_ack
from walktalk.transforms.codecs import Bytes

log = logging.getLogger(__name__)

ASK_AFTER = 1.0
"""Seconds without an answer until the sender asks how far the message is, and asks again."""

REFUSED = 5
"""Times that a message is sent again because the other side does not know of it. It came, and was dropped: whatever is
wrong with it, what waits behind it is not to wait for ever."""


UNANSWERED = 5.0
"""Seconds without any answer, though it was asked about a message that was sent whole: then the other side is deaf."""

UNTAKEN = 6.0
"""Seconds in which it may say that the message waits: its node takes one within moments, or is as good as deaf."""

SLOWEST = 1e5  # bytes a second, at which what waits in buffers on the way may still arrive meanwhile
IN_BUFFERS = 4 << 20  # bytes that may wait there

WEIGHT = 1 / 8  # of the newest rate in the mean


ASKED_AGAIN = 2
"""Times that an algorithm asks again for an answer to what the other side has taken, and would answer as it comes: then
the other side's link works, and its algorithm does not. Each time it waits twice as long. Once is enough where it was
so before."""

REMEMBERED = 16  # messages of which it is counted how often an answer was asked for


@dataclass(frozen=True, eq=False)
class OutgoingModel:
    """A message with its payload and its number."""

    parcel: Parcel
    payload: Bytes
    stamp: Stamp


class Outbox:
    """Sends models to one neighbour, first in, first out, one unacknowledged message at a time."""

    def __init__(
        self,
        put: Callable[[bytes], None],  # sends a chunk; blocks while the network is busy
        ask: Callable[[bytes], None],  # sends a question about a message; never blocks
        taken: Callable[[Parcel], None],  # told of every message that the other side has taken
        resent: Callable[[], None],  # told when a message has to be sent again
        incarnation: int,
    ) -> None:
        self._put, self._ask, self._taken, self._resent = put, ask, taken, resent
        self._incarnation, self._number = incarnation, 0
        self._line: collections.deque[OutgoingModel] = collections.deque()
        self._current: OutgoingModel | None = None
        self._answer: Answer | None = None  # to the message on its way
        self._changed = threading.Condition()
        self._closed = False
        self._began = 0.0  # when the message on its way was first sent
        self._sent_at: float | None = None  # when all of it was sent; None before that
        self._heard_at = 0.0  # when the other side has said anything about it, or it was sent
        self._gave_up = False  # whether a message was given up since the other side took one
        self._agains: dict[Message, int] = {}  # by message that was taken: how often its answer was asked for again
        self._was_mute = False
        self.taken = 0  # messages that the other side has taken
        self.rate = 0.0  # bytes a second of the models that were taken, a running mean; 0 before the first
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._line) + (self._current is not None)

    def put(self, parcel: Parcel, payload: Bytes) -> Stamp:
        """Send this after all that was put before. The payload must not change any more."""
        with self._changed:
            self._number += 1
            letter = OutgoingModel(parcel, payload, Stamp(self._incarnation, self._number))
            self._line.append(letter)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"outbox-{parcel.receiver}", daemon=True)
                self._thread.start()
        return letter.stamp

    def withdraw(self, kind: str, walk: int) -> list[tuple[Parcel, Stamp]]:
        """Take out of the line what is of this kind and walk and has not begun to be sent; returns it."""
        with self._changed:
            old = [one for one in self._line if (one.parcel.message.kind, one.parcel.message.walk) == (kind, walk)]
            for letter in old:
                self._line.remove(letter)
        return [(letter.parcel, letter.stamp) for letter in old]

    def answered(self, ack: Ack) -> None:
        """The other side has said something about a message."""
        with self._changed:
            letter = self._current
            if letter is None or ack.stamp != letter.stamp:
                return
            self._answer, self._heard_at = ack.answer, time.monotonic()
            if ack.answer is Answer.TAKEN:
                self._current = None
                self.taken += 1
                self._gave_up = False
                self._learn_rate(letter)
            self._changed.notify_all()
        if ack.answer is Answer.TAKEN:
            self._taken(letter.parcel)  # from here, not from the sending thread: one change of thread less in every hop

    @property
    def is_deaf(self) -> bool:
        """Whether the other side acknowledges nothing any more, whatever else it says."""
        with self._changed:
            letter, sent_at, now = self._current, self._sent_at, time.monotonic()
            if self._gave_up:
                return True
            if letter is None or sent_at is None:
                return False
            on_its_way = min(letter.payload.nbytes, IN_BUFFERS) / SLOWEST
            return now > self._heard_at + UNANSWERED + on_its_way or now > sent_at + UNTAKEN + on_its_way

    def there_again(self) -> None:
        """The other side has come: what was sent while it was away is nothing that it has not acknowledged."""
        with self._changed:
            self._gave_up = False
            if self._sent_at is not None:
                self._sent_at = self._heard_at = time.monotonic()

    def ask_again(self, message: Message) -> None:
        """The algorithm asks for the answer to a message once more, though the other side has taken it."""
        with self._changed:
            self._agains[message] = self._agains.pop(message, 0) + 1
            if len(self._agains) > REMEMBERED:
                del self._agains[next(iter(self._agains))]

    @property
    def is_mute(self) -> bool:
        """Whether the other side takes what comes, and its algorithm answers nothing."""
        with self._changed:
            enough = 1 if self._was_mute else ASKED_AGAIN
            return any(times >= enough for times in self._agains.values())

    def _learn_rate(self, letter: OutgoingModel) -> None:
        rate = letter.payload.nbytes / max(time.monotonic() - self._began, 1e-6)
        self.rate += (rate - self.rate) * (WEIGHT if self.rate else 1.0)

    def cancel(self) -> list[Parcel]:
        """Forget all that is not acknowledged; returns it."""
        with self._changed:
            letters = ([self._current] if self._current is not None else []) + list(self._line)
            self._line.clear()
            self._was_mute = self._was_mute or any(times >= ASKED_AGAIN for times in self._agains.values())
            self._agains.clear()
            self._current, self._gave_up = None, False
            self._changed.notify_all()
        return [letter.parcel for letter in letters]

    def holds(self, parcel: Parcel) -> bool:
        """Whether this very message is still on its way: to put it again would send it twice."""
        with self._changed:
            letters = [*self._line, *([self._current] if self._current is not None else [])]
            return any(letter.parcel == parcel for letter in letters)

    def wait_idle(self, seconds: float) -> bool:
        """Wait until everything is acknowledged, at most so long."""
        with self._changed:
            return self._changed.wait_for(lambda: not len(self), max(0.0, seconds))

    def close(self) -> None:
        """Stop sending, and forget what waits."""
        self.cancel()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._line or self._closed)
                if self._closed:
                    return
                letter = self._line.popleft()
                self._current, self._answer, self._sent_at = letter, None, None
            self._began = time.monotonic()
            self._try(self._transmit, letter)
            self._sent_at = self._heard_at = time.monotonic()
            while self._current is letter and not self._closed:
                self._try(self._await, letter)

    def _try(self, step: Callable[[OutgoingModel], None], letter: OutgoingModel) -> None:
        """What fails once (a connection that just broke, a session that closes) may succeed when it is asked again."""
        try:
            step(letter)
        except Exception as error:
            if not self._closed:
                log.warning("a message to node %d: %s; it is tried again", letter.parcel.receiver, error)
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or self._current is not letter, ASK_AFTER)

    def _await(self, letter: OutgoingModel) -> None:
        """Wait until a message is taken or given up."""
        again = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._answer is not None or self._current is not letter, ASK_AFTER)
                answer, self._answer = self._answer, None
                if self._current is not letter:
                    return
            if answer is Answer.UNKNOWN and again >= REFUSED:
                self._give_up(letter)
            elif answer is Answer.UNKNOWN:
                again += 1
                self._resent()
                self._transmit(letter)
            elif answer is None:
                self._ask(encode_ack(Ack(letter.stamp, Answer.ASKED)))

    def _give_up(self, letter: OutgoingModel) -> None:
        log.warning("a message to node %d is dropped there, again and again: given up", letter.parcel.receiver)
        with self._changed:
            self._gave_up = self._gave_up or self._current is letter
            self._current = None if self._current is letter else self._current
            self._changed.notify_all()

    def _transmit(self, letter: OutgoingModel) -> None:
        payload = letter.payload
        for chunk in chunks(letter.parcel, payload.data if payload.size else b"", letter.stamp):
            if self._current is not letter:
                return
            self._put(chunk)
