"""What will happen, in order of virtual time.

A heap of (time, sequence, …): events at the same time come out in the order in which they were put in, so a tie never
depends on luck. What is due at once skips the heap.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any, TypeAlias

INFINITY = float("inf")
TRAINED, ARRIVED, TIMER, TRANSFERRED, EVALUATION, ROUND_TRIP, FAULT = range(7)  # kinds of things to come

# One thing to come: when; a sequence number that breaks ties, first in, first out; what kind of thing; and whatever
# that kind needs. A plain tuple: millions are made, and compared by the heap.
Entry: TypeAlias = tuple[float, int, int, Any]


class Agenda:
    """The future of one simulation."""

    __slots__ = ("_at_once", "_heap", "_sequence", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[Entry] = []
        self._at_once: deque[Entry] = deque()
        self._sequence = 0

    def put(self, delay: float, kind: int, content: Any) -> None:
        """Something happens `delay` from now."""
        self._sequence += 1
        if delay <= 0.0:
            self._at_once.append((self.now, self._sequence, kind, content))
        else:
            heappush(self._heap, (self.now + delay, self._sequence, kind, content))

    def put_at(self, time: float, kind: int, content: Any) -> None:
        """Something happens at a time."""
        self.put(time - self.now, kind, content)

    def next_time(self) -> float:
        """When the next thing happens; infinity when nothing will."""
        if self._at_once:
            return self.now
        return self._heap[0][0] if self._heap else INFINITY

    def take(self, until: float = INFINITY) -> Entry | None:
        """The next thing, with the clock set to its time; None if nothing is to come, or nothing by `until`."""
        heap, at_once = self._heap, self._at_once
        # What is due at once was put in now, so it comes before everything later, and after what the heap holds for
        # this same instant only if that was put in earlier.
        if at_once and not (heap and heap[0][0] <= self.now and heap[0][1] < at_once[0][1]):
            return at_once.popleft() if self.now <= until else None
        if not heap or heap[0][0] > until or heap[0][0] == INFINITY:
            return None
        entry = heappop(heap)
        self.now = entry[0]
        return entry

    def __len__(self) -> int:
        return len(self._heap) + len(self._at_once)


# Python's search for cyclic garbage, and when to do without it.


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Events and effects make no cycles, and looking for some among millions of small tuples takes half the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
