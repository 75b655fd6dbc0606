"""What will happen, in order of virtual time.

A heap of (time, sequence, …): events at the same time come out in the order in which they were put in, so a tie never
depends on luck. What is due at once skips the heap.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Any, NamedTuple

INFINITY = float("inf")


class Entry(NamedTuple):
    """One thing to come."""

    time: float  # when
    sequence: int  # breaks ties: first in, first out
    kind: int  # what it is; the simulation's own numbering
    content: Any  # whatever that kind needs


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
            self._at_once.append(Entry(self.now, self._sequence, kind, content))
        else:
            heapq.heappush(self._heap, Entry(self.now + delay, self._sequence, kind, content))

    def put_at(self, time: float, kind: int, content: Any) -> None:
        """Something happens at a time."""
        self.put(time - self.now, kind, content)

    def next_time(self) -> float:
        """When the next thing happens; infinity when nothing will."""
        if self._at_once:
            return self.now
        return self._heap[0][0] if self._heap else INFINITY

    def take(self) -> Entry:
        """The next thing, with the clock set to its time."""
        # What is due at once was put in now, so it comes before everything later, and after what the heap holds for
        # this same instant only if that was put in earlier.
        if self._at_once and not (self._heap and self._heap[0][:2] < self._at_once[0][:2]):
            return self._at_once.popleft()
        entry = heapq.heappop(self._heap)
        self.now = entry[0]
        return entry

    def __len__(self) -> int:
        return len(self._heap) + len(self._at_once)
