"""How far the aggregator's tickets go, as its heartbeats say: one that is far beyond them is forged, whoever brings it.

Nodes tell copies of a walk apart by their tickets. A copy with a ticket that nobody wrote would be the latest wherever
it comes, would end the true one where they meet, and is worth nothing to the aggregator. So every heartbeat says which
is the highest ticket on any walk, and no node takes one that cannot have been written since.
"""

from __future__ import annotations

from collections.abc import Callable

AHEAD = 16  # visits of a walk beyond those that were heard of, each as many tickets further as there are walks
FASTER = 8.0  # times as many in a heartbeat as ever before


class Written:
    """What one node knows of the present aggregator's."""

    __slots__ = ("_ahead", "_beat", "_growth", "_highest", "_own")

    def __init__(self, own: Callable[[], int], walks: int) -> None:
        """own: the highest ticket that this node has written, where it aggregates. walks: how many there are."""
        self._own, self._ahead = own, AHEAD * walks
        self.new_reign()

    def new_reign(self) -> None:
        """Another node aggregates, and counts from 1 again."""
        self._highest = self._beat = 0
        self._growth = -1.0  # from one beat to the next, the most so far; below 0 while that is not known

    def hear(self, highest: int, beat: int) -> None:
        """What a heartbeat says that is new here."""
        if self._beat:
            self._growth = max(self._growth, (highest - self._highest) / max(beat - self._beat, 1), 0.0)
        self._highest, self._beat = highest, beat

    def highest(self, leads: bool) -> int:
        """What is to be told to others."""
        return self._own() if leads else self._highest

    def believes(self, ticket: int, beats: float) -> bool:
        """Whether it can have been written; `beats`: how many ago the last heartbeat came."""
        return self._growth < 0 or ticket <= self._highest + self._ahead + FASTER * self._growth * (
            1.0 + max(beats, 0.0)
        )
