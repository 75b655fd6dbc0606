"""Who aggregates: claims and ballots, merged by taking the greater, so that all who hear of each other agree.

A *claim* says: this node aggregates in this term. A *ballot* says: this node is the best known candidate for the next
term. Both are ordered, first by term, then by how well suited the node is (degree, bandwidth, memory, compute: Section
5 of the paper), then by its number. Everyone keeps the greatest that it has heard and passes it on, so a connected
component ends with one claim, whatever the order of the messages; an aggregator that hears of a greater claim steps
down, be it an old one that came back or the other half's after a partition.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple


class Score(NamedTuple):
    """How well suited a node is; compared field by field."""

    degree: float = 0.0  # living neighbours
    bandwidth: float = 0.0
    memory: float = 0.0
    compute: float = 0.0


class Claim(NamedTuple):
    """A node that aggregates, or would: the greater one counts."""

    term: int
    score: Score
    rank: int  # minus the node's number: of two equal nodes the one with the lower number is preferred

    @property
    def node(self) -> int:
        """Who it is."""
        return -self.rank

    @property
    def reign(self) -> tuple[int, int]:
        """What tells one aggregator's time from all others: its term and its node."""
        return self.term, -self.rank


NOBODY = Claim(0, Score(), 1)


class View(NamedTuple):
    """What a heartbeat says."""

    claim: Claim  # the aggregator, as far as the sender knows
    beat: int  # the latest heartbeat of that aggregator that the sender has heard of
    ballot: Claim  # the best candidate, where an election is under way; else not above the claim
    degree: int  # how many living neighbours the sender has
    incidents: int  # counts what went wrong anywhere, a node that was lost or silent for too long; begins again at 2³²
    depth: int = 0  # hops from the aggregator to the sender
    deepest: int = 0  # the most hops to any node that the sender has heard of
    sightings: tuple[int, ...] = ()  # by walk: the beat at which somebody had it last, as far as the sender knows
    highest: int = 0  # ticket that the aggregator had written on any walk at that beat


_CLAIM = struct.Struct("<Ii4f")
_HEAD = struct.Struct("<IIIHHBHI")
_MOST = 2**16 - 1  # beats ago, what is older was never; and hops
LARGEST = 2**31 - 1  # term or beat that is believed: far from where the fields are full
LEAP = 1_000  # terms that a claim may be ahead of the one that is known: nobody misses so many elections in one life


def encode(view: View) -> bytes:
    """As the note of a message; the ballot only where there is one, and sightings as how long they are ago."""
    claims = [view.claim, view.ballot] if view.ballot.term > view.claim.term else [view.claim]
    ago = [min(view.beat - seen, _MOST) for seen in view.sightings]
    counts = min(view.depth, _MOST), min(view.deepest, _MOST), len(claims), len(ago), view.highest
    head = _HEAD.pack(view.beat, view.degree, view.incidents, *counts)
    return b"".join((head, *map(_pack, claims), struct.pack(f"<{len(ago)}H", *ago)))


def decode(note: bytes) -> View:
    """Back again; `ValueError` where it is not a view."""
    if len(note) < _HEAD.size:
        raise ValueError("a view is longer")
    beat, degree, incidents, depth, deepest, claims, walks, highest = _HEAD.unpack_from(note)
    end = _HEAD.size + claims * _CLAIM.size
    if claims not in (1, 2) or len(note) != end + 2 * walks:
        raise ValueError(f"a view of {claims} claims and {walks} walks is not {len(note)} bytes long")
    if max(beat, highest) > LARGEST:
        raise ValueError(f"a view of beat {beat} and ticket {highest}")
    claim = _unpack(note, _HEAD.size)
    ballot = _unpack(note, _HEAD.size + _CLAIM.size) if claims == 2 else NOBODY
    ago = struct.unpack_from(f"<{walks}H", note, end)
    sightings = tuple(beat - age if age < _MOST and age < beat else 0 for age in ago)
    return View(claim, beat, ballot, degree, incidents, depth, deepest, sightings, highest)


def later(heard: int, known: int) -> bool:
    """Whether a number of incidents is later than another, on a circle: no message can use the count up.

    Only if it is not far ahead. Three numbers around the circle would each be later than another, and where somebody
    has forged two of them they would chase each other through the network for ever, a heartbeat at every step.
    """
    return 0 < (heard - known) % INCIDENTS < AHEAD


INCIDENTS = 2**32
AHEAD = 2**20  # so that a chase needs a ring of 4,096 nodes


def _pack(claim: Claim) -> bytes:
    return _CLAIM.pack(claim.term, claim.rank, *claim.score)


def _unpack(note: bytes, at: int) -> Claim:
    term, rank, *score = _CLAIM.unpack_from(note, at)
    if not all(0.0 <= value < math.inf for value in score) or term > LARGEST or rank > NOBODY.rank:
        raise ValueError(f"no claim: term {term}, rank {rank}, score {score}")
    return Claim(term, Score(*score), rank)


def candidate(term: int, node: int, degree: int, resources: tuple[float, float, float]) -> Claim:
    """A node as a candidate; numbers rounded as on the wire, so that a score that comes back is the same."""
    return Claim(term, Score(*_SCORE.unpack(_SCORE.pack(degree, *resources))), -node)


_SCORE = struct.Struct("<4f")
