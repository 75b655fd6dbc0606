"""Who is there, as a link tells its node: a neighbour that opens its connections anew has not gone.

It says so before (`Answer.BACK_SOON`), and its token then goes and comes again. Only where it does not come in time is
the node told that it is gone; walks that are on their way to it wait so long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

GRACE = 15.0  # seconds until one that is excused must be back


class Presence:
    """One link's neighbours."""

    def __init__(self, tell: Callable[[int, bool], None]) -> None:
        """tell: is called with a neighbour and whether it is there; more often than it changes."""
        self._tell = tell
        self._lock = threading.Lock()
        self._excused: dict[int, float] = {}  # by neighbour: until when
        self._timers: dict[int, threading.Timer] = {}  # of those that have gone and are excused

    def excuse(self, peers: Iterable[int]) -> None:
        """These, or this node itself, are gone for a moment; those that are not seen again by then are gone."""
        with self._lock:
            for peer in peers:
                self._excused[peer] = time.monotonic() + GRACE

    def came(self, peer: int) -> None:
        """A neighbour's token is there."""
        with self._lock:
            timer = self._timers.pop(peer, None)
            if timer is not None:
                timer.cancel()  # it is excused all the same: both sides may open their connections anew, in turn
        self._tell(peer, True)

    def went(self, peer: int) -> None:
        """It is not."""
        with self._lock:
            left = self._excused.get(peer, 0.0) - time.monotonic()
            if left > 0.0:
                if peer not in self._timers:
                    self._timers[peer] = threading.Timer(left, self._give_up, [peer])
                    self._timers[peer].daemon = True
                    self._timers[peer].start()
                return
        self._tell(peer, False)

    def close(self) -> None:
        """Tell nothing any more."""
        with self._lock:
            for timer in self._timers.values():
                timer.cancel()

    def _give_up(self, peer: int) -> None:
        with self._lock:
            if self._timers.pop(peer, None) is None:
                return
        self._tell(peer, False)
