"""A node's time: how long it and the run have lasted, and what it wants to be reminded of."""

from __future__ import annotations

import time


class Clock:
    """Monotonic inside; the wall clock only for the trace."""

    def __init__(self) -> None:
        self.behind = 0.0  # seconds that the run had lasted when this node began
        self._timers: dict[str, float] = {}
        self._asked = time.monotonic()  # when the loop looked at it last
        self._began, self._wall = self._asked, time.time()

    def begin(self) -> None:
        """From now on the node takes part. The time of day was asked for once, and counts on: one life, one clock."""
        self._wall += self.elapsed
        self._began = self._asked = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since this node began."""
        return time.monotonic() - self._began

    @property
    def run_time(self) -> float:
        """Seconds since the run began, which may be longer ago than this node's start."""
        return self.elapsed + self.behind

    @property
    def wall(self) -> float:
        """The time of day, without the jumps that somebody may make it take."""
        return self._wall + self.elapsed

    @property
    def stands_still(self) -> float:
        """Seconds since the node's loop looked for its next timer, which it does several times a second."""
        return time.monotonic() - self._asked

    def hear(self, run_time: float) -> None:
        """A neighbour says how long the run has lasted."""
        self.behind = max(self.behind, run_time - self.elapsed)

    def set_timer(self, name: str, after: float) -> None:
        """Remind of this; one of the same name that still runs is replaced."""
        self._timers[name] = time.monotonic() + after

    def next_timer(self) -> tuple[str, float]:
        """The timer that runs out first, and the seconds until then. There must be one."""
        name, self._asked = min(self._timers, key=self._timers.__getitem__), time.monotonic()
        return name, max(0.0, self._timers[name] - self._asked)

    def drop_timer(self, name: str) -> None:
        """It has run out."""
        del self._timers[name]
