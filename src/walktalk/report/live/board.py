"""What a live page shows at the moment, and a way to wait for the next change; any number of threads may look."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple


class State(NamedTuple):
    """One moment."""

    version: int  # grows with every change
    parts: dict[str, Any] | None  # `sections` and `data` of the page; None before there is anything to show
    parts_version: int  # when they changed last
    progress: dict[str, Any]  # how far it is, in words and numbers
    ended: bool  # nothing will come any more


class Board:
    """The state, and who waits for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._state = State(0, None, 0, {}, False)
        self.watchers = 0  # pages that are open
        self._to_come = 0  # of those that were open at the end, how many have not taken the last state yet

    @property
    def state(self) -> State:
        """As it is now."""
        return self._state

    def show(
        self, *, parts: dict[str, Any] | None = None, progress: dict[str, Any] | None = None, ended: bool = False
    ) -> None:
        """Change what is given; the rest stays."""
        with self._changed:
            before = self._state
            version = before.version + 1
            self._state = State(
                version,
                before.parts if parts is None else parts,
                before.parts_version if parts is None else version,
                before.progress if progress is None else progress,
                before.ended or ended,
            )
            if ended and not before.ended:
                self._to_come = self.watchers
            self._changed.notify_all()

    def after(self, version: int, seconds: float) -> State:
        """The first state after this version; the same one if nothing changes for so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._state.version > version, seconds)
            return self._state

    def watch(self, change: int) -> None:
        """A page is opened (+1) or closed (−1)."""
        with self._changed:
            self.watchers += change

    def taken(self) -> None:
        """A page has taken the state; after the end, it has all that there will be."""
        with self._changed:
            if self._state.ended:
                self._to_come -= 1
                self._changed.notify_all()

    def wait_until_taken(self, seconds: float) -> None:
        """Until all pages that were open at the end have the last state, but not longer than this."""
        with self._changed:
            self._changed.wait_for(lambda: self._to_come <= 0, seconds)
