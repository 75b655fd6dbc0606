"""Who takes part in a run, as one node knows it: said loudly at its start and its end, and when it changes.

A site that is missing trains nothing, and a run without it looks as well as one with it. So every node counts who is
there by what all tell each other of themselves (`tally`), whatever the graph and the algorithm. `at_least` is how many
a run asks for: so many must be there before a node begins, and where they are fewer later, the node is not well.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

from walktalk.runtimes.peers.node.news import News
from walktalk.runtimes.peers.node.tally import Count, Tally

AtLeast: TypeAlias = int | Literal["all"] | None
"""How many nodes a run asks for; None: as many as come."""

PATIENCE = 10.0  # seconds after its start until a node says who is missing: words need some rounds to come around
REMIND = 30.0  # seconds between two lines of a node that waits for others
NAMED = 12  # names in one line; of more their number is said


class Participation:
    """Counts who takes part, and says so."""

    def __init__(
        self, tally: Tally, names: Callable[[], Mapping[int, str]], at_least: AtLeast, news: News, returns: bool
    ) -> None:
        """
        - `tally`: what is known of everybody.
        - `names`: gives the names of all that belong, by number.
        - `at_least`: how many must be there.
        - `news`: the node's log.
        - `returns`: the node comes back to a run that has begun, or joins one: it waits for nobody.
        """
        self._tally, self._names, self._at_least, self._news = tally, names, at_least, news
        self._waits = at_least is not None and not returns
        self._began = self._told_at = -1.0  # by this machine's clock; -1: not yet
        self._known: frozenset[int] | None = None  # who was there when that was said last
        self._ended = False

    @property
    def there(self) -> list[str]:
        """Names of those who take part now."""
        return [name for node, name in sorted(self._names().items()) if node in self._present()]

    @property
    def missing(self) -> list[str]:
        """Names of those who belong and do not take part now."""
        return [name for node, name in sorted(self._names().items()) if node not in self._present()]

    @property
    def needed(self) -> int:
        """How many the run asks for; 0 where it asks for none."""
        return len(self._names()) if self._at_least == "all" else self._at_least or 0

    @property
    def too_few(self) -> str:
        """The complaint that fewer take part than the run asks for; "" where they are enough, or it is over."""
        there, now = len(self._present()), time.monotonic()
        if self._ended or there >= self.needed or 0.0 <= self._began > now - PATIENCE:
            return ""
        return f"{there} nodes take part, and the run asks for at least {self.needed}; missing: {named(self.missing)}"

    @property
    def is_waited_for(self) -> bool:
        """Whether the node has to wait: so many were never there yet."""
        if self._waits and len(self._present()) >= self.needed:
            self._waits = False
        return self._waits

    def remind(self) -> None:
        """Say for whom the node waits, now and then."""
        now = time.monotonic()
        if self._told_at < 0.0 or now > self._told_at + REMIND:
            self._told_at = now
            self._news.say(f"waits: {self.too_few}", logging.WARNING)

    def begin(self) -> None:
        """The node begins to train."""
        self._began = time.monotonic()

    def look(self) -> None:
        """Say who takes part once all are there, or some seconds after the start; and later whatever changes."""
        there = self._present()
        if self._ended or self._began < 0.0 or self._known == there:
            return
        everybody = frozenset(self._names())
        if self._known is None and not there >= everybody and time.monotonic() < self._began + PATIENCE:
            return
        before, self._known = self._known, there
        if before is None:
            self._say(there, everybody, "")
            return
        names = self._names()
        came, went = (named(names[n] for n in sorted(some) if n in names) for some in (there - before, before - there))
        words = [f"{came} takes part now" if came else "", f"{went} does not take part any more" if went else ""]
        if any(words):
            self._say(there, everybody, "; ".join(filter(None, words)) + ": ")

    def end(self) -> None:
        """The run is over: say who took part to the end, who left before it, and who never came."""
        if self._ended:
            return
        lasted = time.monotonic() - self._began if self._began >= 0.0 else 0.0
        self._ended = True
        if lasted < PATIENCE:  # not everybody may have been heard of, in so short a time
            return
        names, counts, there = self._names(), self._tally.counts, self._present(ended=True)
        never = [name for n, name in sorted(names.items()) if n not in there and not counts.get(n, Count()).moment]
        gone = [name for n, name in sorted(names.items()) if n not in there and name not in never]
        full = not never and not gone
        line = f"the run is over; {len(there)} of {len(names)} nodes took part to its end"
        line += "" if full else f": {named(names[n] for n in sorted(there))}"
        line += f"; gone before: {named(gone)}" if gone else ""
        line += f"; NEVER THERE: {named(never)}" if never else ""
        self._news.say(line, logging.INFO if full else logging.WARNING)

    def _say(self, there: frozenset[int], everybody: frozenset[int], first: str) -> None:
        names, missing = self._names(), everybody - there
        line = f"{first}{len(there & everybody)} of {len(everybody)} nodes take part"
        line += f": {named(names[n] for n in sorted(there) if n in names)}"
        line += f"; MISSING: {named(names[n] for n in sorted(missing))}" if missing else ""
        if len(there) < self.needed:
            line += f"; the run asks for at least {self.needed}"
        self._news.say(line, logging.WARNING if missing else logging.INFO)

    def _present(self, ended: bool = False) -> frozenset[int]:
        """Numbers of those that are there; `ended`: with those that have seen the end and have gone since."""
        over = {node for node, count in self._tally.counts.items() if count.over} if ended else set()
        return frozenset((self._tally.there() | {self._tally.node} | over) & self._names().keys())


def named(names: Iterable[str]) -> str:
    """Names in one line; of many the first, and how many more there are."""
    known = list(names)
    more = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
    return ", ".join(known[:NAMED]) + more
