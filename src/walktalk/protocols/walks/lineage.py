"""What a node noted of a walk, and whether it belongs to the walk that is here now.

Some walks leave something at every node that the walk itself has counted: token SAGA a gradient, Walkman what the node
has put into the mean. That fits only if both speak of the same walk. A walk that was lost and is begun again has no
past, one that was sent to two nodes goes on as two, and a node that died may have forgotten what it noted last. So a
walk carries the name of its *lineage*: a number and random bits. Where it comes with none, finds a later one than its
own, or comes to a node that has been dead, it begins a new lineage, later than what it found. What nodes noted under an
earlier one counts for nothing from then on. So after a failure what is noted and what is counted fit again as soon as
the walk has been at the nodes that it concerns, and while nothing fails they fit always.
"""

from __future__ import annotations

import struct
from random import Random
from typing import NamedTuple

_NAME = struct.Struct("<II")


class Name(NamedTuple):
    """A lineage's; the later is the greater."""

    number: int = 0
    bits: int = 0  # at random: two that begin at different places at once are told apart

    def encode(self) -> bytes:
        """As a walk carries it."""
        return _NAME.pack(*self)


def name_in(more: bytes) -> Name | None:
    """The lineage that a walk carries; None where it has none; `ValueError` where it is something else."""
    if not more:
        return None
    if len(more) < _NAME.size:
        raise ValueError("a lineage is longer")
    return Name(*_NAME.unpack_from(more))


NAME_BYTES = _NAME.size


class Lineages:
    """One node's: under which lineage it noted something of each walk."""

    __slots__ = ("noted", "unsure")

    def __init__(self) -> None:
        self.noted: dict[int, Name] = {}
        self.unsure = False  # it has been dead; what its slots hold may be older than what walks have counted
        # A walk that comes then begins anew, once; it is in `noted` after that.

    def meets(self, walk: int, carries: Name | None, random: Random) -> tuple[Name, bool]:
        """A walk is here: its lineage from now on, and whether that begins now."""
        found = self.noted.get(walk)
        lost = self.unsure and found is None
        if carries is None or lost or (found is not None and found > carries):
            number = max(found.number if found is not None else 0, carries.number if carries is not None else 0)
            return Name(min(number + 1, 2**32 - 1), random.getrandbits(32)), True
        return carries, False

    def has(self, walk: int, name: Name) -> bool:
        """Whether something of that walk was noted here, under this lineage."""
        return self.noted.get(walk) == name

    def notes(self, walk: int, name: Name) -> None:
        """Something of that walk is noted here."""
        self.noted[walk] = name

    def rejoined(self) -> None:
        """The node is back after a death."""
        self.noted.clear()
        self.unsure = True
