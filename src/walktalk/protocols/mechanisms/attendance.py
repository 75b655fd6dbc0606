"""Whom a round waits for: not for those that are lost, nor for those that took longer than others ever did.

Who was left out for being late is not waited for again before it speaks; nor is one that comes back, which has taken no
part meanwhile. Where several rounds are open they are waited for one after the other. How long the others may take is
learned (`timeouts`) from the rounds of which nobody was left out.
"""

from __future__ import annotations

from collections.abc import Collection

from walktalk.protocols.effects import Effect, Note, SetTimer
from walktalk.protocols.timeouts import Arrivals

LATE = "late"  # timer: whoever has not come by then is left out


class Attendance:
    """Who takes part, as one node sees it."""

    __slots__ = ("absent", "began", "cut", "waits")

    def __init__(self, patience: float, cut: set[int] | None = None) -> None:
        """
        - `patience`: seconds to wait for those that are late, at first.
        - `cut`: where those that are lost are written down; a set of its own if left out.
        """
        self.cut = set() if cut is None else cut  # lost, as the runtime says
        self.absent: set[int] = set()  # too late, and silent since
        self.waits = Arrivals(patience / 4, 0.0)  # how long the last of them takes
        self.began: float | None = None  # when the present wait began

    @property
    def out(self) -> set[int]:
        """Those that nobody waits for."""
        return self.cut | self.absent

    def lost(self, peer: int) -> None:
        """The runtime says that it is."""
        self.cut.add(peer)

    def found(self, peer: int) -> None:
        """It is there again: awaited when it has spoken."""
        self.cut.discard(peer)
        self.absent.add(peer)

    def speaks(self, peer: int) -> None:
        """A node takes part, and is awaited."""
        self.absent.discard(peer)

    @property
    def is_waiting(self) -> bool:
        """Whether a wait has begun, and has been neither completed nor in vain."""
        return self.began is not None

    def wait(self, now: float) -> Effect:
        """This node has done its own part, and waits for the others'."""
        self.began = now
        return SetTimer(LATE, self.waits.patience)

    def complete(self, now: float) -> None:
        """Nobody is awaited any more."""
        if self.began is not None:
            self.waits.observe(now - self.began)
            self.began = None

    def leave_out(self, peers: Collection[int], round_: int) -> list[Effect]:
        """Leave these out of this round; nothing is learned from a wait that was in vain."""
        self.absent.update(peers)
        self.began = None
        return [Note("left_out", peer=peer, number=round_) for peer in peers]
