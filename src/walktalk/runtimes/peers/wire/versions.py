"""Which versions this walktalk speaks, and with whom it works: the one place that says so.

Two nodes need not be of one version. Each says the oldest and the newest that it speaks, and both go by the newest that
both know. A walktalk works with the version before its own, so that a cluster can be upgraded, and rolled back, node by
node. Whoever knows more keeps to what the other knows, and what one does not know of a newer one, it passes on as it
is, or does without: keys beside the facts of a hello, numbers behind those of a count, fields behind those of an entry
of the roster, fields of answers, columns and events of an event log, facts of a checkpoint.

What nodes say to each other:

    8   counts of nodes are words of one length, in messages `tally`. Such a node says no versions: it compares the
        number in its facts, so this is what stands there. (All that is older is refused.)
    9   a hello says which versions its node speaks, what it is (`about`), and the form of its data (`schema`); each
        count has its length before it, in messages `counts`, so that later versions may say more of a node. With one
        that speaks 8: `tally`.

A node's checkpoint:

    1   counts, slots and the machine's memory; it says no version
    2   says which versions can read it, and what was sent to whom (`exchanged`). Version 1 reads it, and does without.

Of the rest (frames, headers and acknowledgements of messages, the line in which a guest introduces itself to a relay, a
script's words to its node) there has been one version. `tests/peers/test_versions.py` holds the bytes of all of them.

A setting that came after the oldest version is told only where it is not at its default (`SETTINGS`), since whoever
does not know it does as by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

HIGHEST = 2**31  # of a version that anybody may say


class Span(NamedTuple):
    """The versions of something that one side knows, both ends included."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        return f"{self.oldest}" if self.oldest == self.newest else f"{self.oldest} to {self.newest}"

    def agreed(self, other: Span) -> int | None:
        """The newest version that both know; None where there is none."""
        newest = min(self.newest, other.newest)
        return newest if newest >= max(self.oldest, other.oldest) else None

    def told(self) -> dict[str, Any]:
        """These versions as they are said: `version` is for those that know of one number alone."""
        return {"version": self.oldest, "speaks": list(self)}


MESSAGES = Span(8, 9)
"""What nodes say to each other, but for hellos, frames, headers and acknowledgements, which all versions understand."""
COUNTS_WITH_LENGTHS = 9  # from this version on
CHECKPOINTS = Span(1, 2)
"""Checkpoints of nodes: those that are read, and the one that is written."""
GUESTS = Span(1, 1)
"""What a guest and its relay say to each other."""
SCRIPT = Span(1, 1)
"""What a node and the script that trains for it say to each other."""

SETTINGS: Mapping[str, Any] = {}
"""Settings that came after the oldest version of messages, with their defaults: `training.key`, or `FedAvg.key` of an
algorithm. Those that do not know them compare what they do not hear of."""


def span_in(said: Mapping[str, Any], otherwise: Any = None) -> Span | None:
    """The versions that somebody speaks; None where that cannot be.

    Args:
        said: What came: `speaks`, or `version` alone.
        otherwise: The version, where neither is there.
    """
    version = said.get("version", otherwise)
    speaks = said.get("speaks", [version, version])
    if not isinstance(speaks, list) or len(speaks) < 2 or any(type(one) is not int for one in speaks[:2]):
        return None
    oldest, newest = speaks[:2]
    return Span(oldest, newest) if 0 < oldest <= newest < HIGHEST else None


def why_not_understood(here: Span, there: Span | None, walktalk: str = "") -> str:
    """Why two cannot work together, and which is to be upgraded; "" where they can.

    Args:
        here: What this side speaks.
        there: What the other does; None where it has said nonsense.
        walktalk: The other's version of walktalk, where it has said it.
    """
    if there is None:
        return "it does not say which versions it speaks"
    if here.agreed(there) is not None:
        return ""
    older, named = there.newest < here.oldest, f" (walktalk {walktalk})" if walktalk else ""
    return f"version is {there} there{named} and {here} here; upgrade {'that one' if older else 'this one'}"
