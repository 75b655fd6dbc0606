"""Two nodes of one name: a machine was copied, or a node was started twice in two places.

Neighbours listen to the one that began later and drop what the other says as of a life that is over. So nobody is
confused for long, but the older one is mute, and what is sent to the name comes to both. A walk goes on with the one
that is heard: only its word that it has taken it counts, and what the older one passes on is dropped; so none is lost,
and none doubled. Who drops such words says so here, and tells the name; the node that hears of a life of its own later
than its own complains. So does one whose folder is gone and whose clock was set back. Nobody is believed further than
that: one lie is a complaint, no more. But a node of which most neighbours say so stands aside, as if it were gone:
those that reach it alone would send it walk after walk, and none would ever go on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import dataclass

STRAY = 3.0  # seconds in which words of a node that was started again may still be on their way
LATELY = 10.0  # seconds after the last of them in which it counts
PAUSE = 1.0  # seconds between two answers to one name


def two_called(name: str) -> str:
    """For logs and complaints."""
    return f"two nodes are called {name}, and the one that began first is not heard; stop both, and start the right one"


@dataclass
class _Heard:
    first: float
    last: float
    answered: float = 0.0


class Namesakes:
    """What one link hears of them; from any thread."""

    def __init__(self, own: int) -> None:
        """own: the number of this node's life."""
        self._own = own
        self._older: dict[int, _Heard] = {}  # by neighbour: words of an earlier life
        self._behind = -LATELY  # when this node was last told of a later life of its own
        self.later = 0  # that life
        self._told: dict[int, float] = {}  # by neighbour: when it said so last

    def dropped(self, sender: int) -> bool:
        """A word of an earlier life of this neighbour was; whether to tell it."""
        now = time.monotonic()
        heard = self._older.get(sender)
        if heard is None or now > heard.last + LATELY:
            heard = self._older[sender] = _Heard(now, now)
        heard.last = now
        if now < max(heard.first + STRAY, heard.answered + PAUSE):
            return False
        heard.answered = now
        return True

    def told(self, life: int, sender: int = -1) -> bool:
        """A neighbour has heard of such a life of this node; whether that is news."""
        if life <= self._own or life >= 1 << 63:
            return False
        self._told[sender] = time.monotonic()
        new = not self.is_behind
        self._behind, self.later = time.monotonic(), max(self.later, life)
        return new

    @property
    def is_behind(self) -> bool:
        """Whether neighbours have lately said that they listen to a later life of this node."""
        return time.monotonic() < self._behind + LATELY

    def is_outvoted(self, alive: Collection[int]) -> bool:
        """Whether most of these neighbours have lately said so."""
        since = time.monotonic() - LATELY
        saying = sum(self._told.get(peer, -math.inf) > since for peer in alive)
        return 2 * saying > len(alive)

    def doubled(self) -> list[int]:
        """Neighbours of which there are two."""
        since = time.monotonic() - LATELY
        lately = {peer: heard for peer, heard in tuple(self._older.items()) if heard.last > since}
        return [peer for peer, heard in lately.items() if heard.last >= heard.first + STRAY]
