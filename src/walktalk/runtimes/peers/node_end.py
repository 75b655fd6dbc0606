"""When a run is over, as one node sees it: nobody is in charge, so each decides from what it hears, and tells."""

from __future__ import annotations

import time
from collections.abc import Collection

from walktalk.runtimes.meaning import Stop
from walktalk.runtimes.peers.tally import Tally

STALLED = 5.0  # seconds in which nobody has anything to train until the run is given up
SPENT = 0.5  # the same, where it is because of privacy budgets
LINGER = 5.0  # seconds that a node which is done waits for others to be done
NEARLY = 0.9  # of the way: from there on one neighbour that has seen the end is believed
NEAR = 1.5  # times the target loss: likewise


class End:
    """Has this node seen the end of the run?"""

    def __init__(self, stop: Stop, tally: Tally) -> None:
        self._stop, self._tally = stop, tally
        self._stalled_at: float | None = None  # since when nobody has had anything to train
        self._seen_at: float | None = None

    @property
    def seen(self) -> bool:
        """Whether it has: it trains no more."""
        return self._seen_at is not None

    @property
    def since(self) -> float:
        """Seconds since it has; 0 where it has not."""
        return time.monotonic() - self._seen_at if self._seen_at is not None else 0.0

    @property
    def long_seen(self) -> bool:
        """Whether the others have had the time to see it too."""
        return self.since > LINGER

    def progress(self, run_time: float) -> float:
        """From 0 to 1."""
        return self._stop.progress(self._tally.iterations, run_time, 8.0 * self._tally.sent)

    def look(self, run_time: float, alive: Collection[int], spent: bool = False) -> str:
        """Why the run is over, if it is: a word for the log; "" where it is not.

        `alive`: the neighbours that are there. One of them that says so is believed where the end is near by this
        node's own reckoning, and most of them anywhere: what they counted, this node may not have heard of.
        `spent`: this node has spent its privacy budget; that stays so.
        """
        tally, target = self._tally, self._stop.target_loss
        why = ""
        if self.progress(run_time) >= 1.0:
            why = "enough was trained"
        elif target is not None and tally.loss <= target:
            why = "the loss is low enough"
        elif self._is_believed(tally.over(alive), len(alive), run_time):
            why = OTHERS
        elif self._stalled(SPENT if spent else STALLED):
            why = ALL_LOST
        if why:
            self._seen_at = time.monotonic()
        return why

    def _is_believed(self, saying: int, alive: int, run_time: float) -> bool:
        """Whether it is over because so many of the neighbours say so."""
        if not saying:
            return False
        target = self._stop.target_loss
        near = self.progress(run_time) >= NEARLY or (target is not None and self._tally.loss <= NEAR * target)
        return near or self._tally.own.idle or (saying > 1 and 2 * saying > alive)  # idle: nothing will ever come

    def _stalled(self, patience: float) -> bool:
        """Whether nobody has had anything to train for a while, and nobody will: walks that no guard starts again."""
        if not self._tally.stalled:
            self._stalled_at = None
            return False
        self._stalled_at = self._stalled_at or time.monotonic()
        return time.monotonic() > self._stalled_at + patience


ALL_LOST = "all walks are lost"
OTHERS = "others have seen the end"
