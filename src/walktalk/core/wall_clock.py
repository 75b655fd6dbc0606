"""The time of day, as nodes know it: the one place where it is asked for, so that a trial can make it jump.

Whatever has to last so long is measured by `time.monotonic`, which nobody sets.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable

_ahead: list[Callable[[], float]] = []  # by how many seconds this process's clock is ahead of the machine's


def shift_wall_clock(ahead: Callable[[], float] | None) -> None:
    """Make the clock of this process wrong by as many seconds as a function says each time; None: it is right again."""
    _ahead[:] = [] if ahead is None else [ahead]


def wall_seconds() -> float:
    """The time of day, in seconds since 1970."""
    return time.time() + sum(ahead() for ahead in _ahead)


def wall_nanoseconds() -> int:
    """The time of day, in nanoseconds since 1970."""
    return time.time_ns() + int(1e9 * sum(ahead() for ahead in _ahead))


def wall_moment() -> datetime.datetime:
    """This moment, in UTC."""
    shifted = datetime.timedelta(seconds=sum(ahead() for ahead in _ahead))
    return datetime.datetime.now(datetime.timezone.utc) + shifted
