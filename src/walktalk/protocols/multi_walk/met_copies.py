"""Which copies of walks came to an aggregator, and what share of the mean they had.

A walk may be sent twice, since its receiver seemed dead, or because somebody lies, and be trained by both: a copy that
comes after another, with a ticket that is used up, is averaged in by its updates among all that came since it left.
Copies with one ticket are together no more of the mean than a walk is, and each takes half of what is left of that at
most, so that forged ones leave something to others.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from walktalk.protocols.multi_walk.walk_pass import Pass

REMEMBERED = 4096  # tickets whose copies are known, of all walks together
COPIES = 16  # with one ticket that count: each has half of the share that is left
BACK = 64  # visits of a walk whose other copies are still welcome, if there are not too many walks

Key: TypeAlias = tuple[int, tuple[int, int], int]  # walk, reign and ticket: what tells it from those of other times


class Met(NamedTuple):
    """Copies of a walk that came with one ticket."""

    since: int = 0  # updates that had come here when it left from here; 0 where it did not
    hops: tuple[int, ...] = ()  # of each that came: another with as many is the same
    share: float = 0.0  # of the mean that they had, but for the first of this reign

    def takes(self, hop: int) -> bool:
        """Whether one with so many hops is another, and not of a flood of them."""
        return hop not in self.hops and len(self.hops) < COPIES


class MetCopies(dict[Key, Met]):
    """All that is known of them in one reign."""

    def of(self, what: Pass) -> Met | None:
        """Those that came with the same ticket; None where nothing is known of it."""
        return self.get(_key(what))

    def has_room(self, what: Pass) -> bool:
        """Whether it can be remembered that this one came."""
        return _key(what) in self or len(self) < REMEMBERED

    def leaves(self, what: Pass, updates: int, walks: int) -> None:
        """A walk leaves with a new ticket, after so many updates; of one that is long used up no copy is taken."""
        self[_key(what)] = Met(updates)
        back = min(BACK, REMEMBERED // walks // 2) * walks
        self.pop(_key(what._replace(ticket=what.ticket - back)), None)

    def comes(self, what: Pass, share: float = 0.0) -> None:
        """A copy has come, and has this share of the mean."""
        met = self.of(what) or Met()
        self[_key(what)] = met._replace(hops=(*met.hops, what.hop), share=met.share + share)

    def share(self, what: Pass, learned: int, updates: int, walks: int) -> float:
        """Of the mean, for a copy that came beside others.

        Args:
            what: the copy.
            learned: how many updates it brings.
            updates: that have come to the aggregator.
            walks: R; copies with one ticket have 1/R together.
        """
        met = self.of(what) or Met()
        return min(learned / (updates - met.since + learned), (1.0 / walks - met.share) / 2)


def _key(what: Pass) -> Key:
    return what.walk, what.reign, what.ticket
