"""What a live page shows at the moment, and a way to wait for the next change; any number of threads may look."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any, NamedTuple

OPENING = 10.0  # seconds after which a page that was handed out and asked for no news was closed again


class State(NamedTuple):
    """One moment."""

    version: int  # grows with every change
    parts: dict[str, Any] | None  # `sections` and `data` of the page; None before there is anything to show
    parts_version: int  # when they changed last
    progress: dict[str, Any]  # how far it is, in words and numbers
    ended: bool  # nothing will come any more


class Board:
    """The state, and who waits for it: pages, each under a name of its own, which it keeps when it is loaded again."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._state = State(0, None, 0, {}, False)
        self._opening: list[float] = []  # when pages were handed out that have not asked for news yet
        self._watching: Counter[str] = Counter()  # streams of news that are open, by page
        self._to_come: set[str] = set()  # of those that heard of the end, which have not taken the last state yet

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
                self._to_come = set(self._watching)
            self._changed.notify_all()

    def after(self, version: int, seconds: float) -> State:
        """The first state after this version; the same one if nothing changes for so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._state.version > version, seconds)
            return self._state

    @property
    def watched(self) -> bool:
        """Whether a page is open."""
        return bool(self._watching)

    def opened(self) -> None:
        """A page is handed out; it will ask for news in a moment, unless it is closed before."""
        with self._changed:
            self._opening = [*self._recent(), time.monotonic()]

    def watch(self, page: str) -> None:
        """A page waits for news from now on."""
        with self._changed:
            del self._opening[:1]
            self._watching[page] += 1
            if self._state.ended:  # it was loaded while this ended: it gets the last state, too
                self._to_come.add(page)
            self._changed.notify_all()

    def leave(self, page: str) -> None:
        """A stream of news has ended: the page is closed or loaded again, or has heard of the end."""
        with self._changed:
            self._watching -= Counter([page])  # to none, a page is no more in it

    def taken(self, page: str, version: int) -> None:
        """A page has taken the parts of this version; after the end, it has all that there will be."""
        with self._changed:
            if self._state.ended and version == self._state.parts_version:
                self._to_come.discard(page)
                self._changed.notify_all()

    def wait_until_taken(self, seconds: float) -> None:
        """Until all pages that are open or being opened have the last state, but not longer than this."""
        with self._changed:
            self._changed.wait_for(lambda: not self._to_come and not self._recent(), seconds)

    def _recent(self) -> list[float]:
        return [when for when in self._opening if time.monotonic() - when < OPENING]
