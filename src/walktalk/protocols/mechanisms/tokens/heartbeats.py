"""What heartbeats say: who aggregates, which walks somebody has, and how far the aggregator's tickets go.

Claims and ballots are merged by taking the greater, so that all who hear of each other agree.

A *claim* says: this node aggregates in this term. A *ballot* says: this node is the best known candidate for the next
term. Both are ordered, first by term, then by how well suited the node is (degree, bandwidth, memory, compute: Section
5 of the paper), then by its number. Everyone keeps the greatest that it has heard and passes it on, so a connected
component ends with one claim, whatever the order of the messages; an aggregator that hears of a greater claim steps
down, be it an old one that came back or the other half's after a partition.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from walktalk.protocols.effects import NOTE_BYTES
from walktalk.protocols.mechanisms.attendance import Arrivals


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
        """The node that makes the claim."""
        return -self.rank

    @property
    def term_id(self) -> tuple[int, int]:
        """What tells one aggregator's time from all others: the term and the node."""
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
MOST_WALKS = (NOTE_BYTES - _HEAD.size - 2 * _CLAIM.size) // 2  # whose sightings fit into a heartbeat
_MOST = 2**16 - 1  # beats ago, what is older was never; and hops
LARGEST = 2**31 - 1  # term or beat that is believed: far from where the fields are full
LEAP = 1_000  # terms that a claim may be ahead of the one that is known: nobody misses so many elections in one life


def encode(view: View) -> bytes:
    """Bytes for the note of a message; the ballot only where there is one, and sightings as how long they are ago."""
    claims = [view.claim, view.ballot] if view.ballot.term > view.claim.term else [view.claim]
    ago = [min(view.beat - seen, _MOST) for seen in view.sightings]
    counts = min(view.depth, _MOST), min(view.deepest, _MOST), len(claims), len(ago), view.highest
    head = _HEAD.pack(view.beat, view.degree, view.incidents, *counts)
    return b"".join((head, *map(_pack, claims), struct.pack(f"<{len(ago)}H", *ago)))


def decode(note: bytes) -> View:
    """Reads what `encode` wrote; `ValueError` where it is something else."""
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
    return 0 < (heard - known) % INCIDENTS < INCIDENTS_AHEAD


INCIDENTS = 2**32
INCIDENTS_AHEAD = 2**20  # so that a chase needs a ring of 4,096 nodes


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


# -- sightings of walks: how the aggregator knows in a few beats that one is lost ------------------------------------
#
# A living walk is always with some node: in training, waiting, or sent and not yet acknowledged. Every heartbeat that
# a node passes on says, walk by walk, at which of the aggregator's beats somebody is known to have had it last; nodes
# take the greater of what they hear and what they see. So the news travel with the heartbeats that there are anyway,
# one hop towards the aggregator with every beat, and a walk of which nothing is heard for longer than that takes is
# lost: however long its trainings are, how many walks there are, and how seldom they come by. The depth of the
# network, which says how long news take, is found out in the same way.

STRETCH = 4  # beats for which what was said of depths is remembered at least


class Sightings:
    """What one node knows of when each walk was seen, in beats of the present aggregator."""

    __slots__ = ("_deepest", "_gaps", "_heard", "_holds", "_stretch", "beats", "depth")

    def __init__(self, walks: int, holds: Callable[[int], bool]) -> None:
        """`walks`: how many there are, 0 where nobody asks. `holds`: whether a walk, counted from 1, is here."""
        self._holds = holds
        self.beats = [0] * walks  # by walk: the latest beat at which somebody had it
        self.new_term()

    def new_term(self) -> None:
        """Another node aggregates, and counts from 1 again."""
        self.beats = [0] * len(self.beats)
        self.depth = 0  # this node's hops from the aggregator
        self._deepest = (0, 0)  # the most hops that were heard of, in this stretch of beats and in the one before
        self._stretch = 0
        self._heard = [0] * len(self.beats)  # the beat at which the news came here
        self._gaps = Arrivals(1.0, 0.0)  # beats from news to news: more than one where messages are lost

    def resume(self, beat: int) -> None:
        """The network was stopped and goes on in the same term, at this beat: nothing is missed yet."""
        self.new_term()
        self.beats = [beat] * len(self.beats)
        self._heard = list(self.beats)

    def saw(self, walk: int, beat: int) -> None:
        """A walk is here, at this beat."""
        if self.beats:
            self._learn(walk - 1, beat, beat)

    def look(self, beat: int) -> None:
        """Look which walks are here now."""
        for walk in range(1, len(self.beats) + 1):
            if self._holds(walk):
                self.saw(walk, beat)

    def passed_on(self, depth: int, nodes: int) -> None:
        """A new beat came first from a neighbour of this depth; no path is longer than all nodes."""
        self.depth = min(depth + 1, nodes - 1)

    @property
    def deepest(self) -> int:
        """The most hops from the aggregator to any node, as far as is known."""
        return max(self.depth, *self._deepest)

    def hear_depth(self, depth: int, deepest: int, beat: int, nodes: int) -> None:
        """How far a neighbour is from the aggregator, and the farthest that it knows of.

        Only those that are farther know of those behind them. And it is forgotten unless it is said again: what one has
        made up would go from node to node for the rest of the term, and every lost walk would be waited for.
        """
        if beat // STRETCH != self._stretch:
            self._deepest = (0, self._deepest[0] if beat // STRETCH == self._stretch + 1 else 0)
            self._stretch = beat // STRETCH
        if depth > self.depth:
            self._deepest = (max(self._deepest[0], min(deepest, nodes - 1)), self._deepest[1])

    def hear(self, beats: Sequence[int], beat: int) -> None:
        """Take in when walks were seen, as a neighbour knows. `beat`: the latest of all; nothing was seen after it."""
        for place, seen in enumerate(beats[: len(self.beats)]):
            self._learn(place, min(seen, beat), beat)

    def _learn(self, place: int, seen: int, beat: int) -> None:
        if seen > self.beats[place]:
            if beat > self._heard[place] > 0:
                self._gaps.observe(float(beat - self._heard[place]))
            self.beats[place], self._heard[place] = seen, beat

    def unseen(self, walk: int, beat: int, awaited: bool) -> bool:
        """Whether news of a walk stay out for longer than they take, at the aggregator's latest beat.

        awaited: whether one that was not seen at all counts as well; nodes of a new network do not start all at once.
        """
        if not self.beats or not (awaited or self.is_known(walk)):
            return False
        return beat - self.beats[walk - 1] > self.deepest + self._gaps.patience

    def is_known(self, walk: int) -> bool:
        """Whether anybody has seen it under this aggregator."""
        return bool(self.beats) and self.beats[walk - 1] > 0

    def age(self, walk: int, beat: int) -> int:
        """How many beats ago, at most, somebody had a walk that is known."""
        return beat - self.beats[walk - 1] + 1


# -- how far tickets go: one that is far beyond what heartbeats say is forged, whoever brings it ----------------------
#
# Nodes tell copies of a walk apart by their tickets. A copy with a ticket that nobody wrote would be the latest
# wherever it comes, would end the true one where they meet, and is worth nothing to the aggregator. So every
# heartbeat says which is the highest ticket on any walk, and no node takes one that cannot have been written since.

TICKETS_AHEAD = 16  # visits of a walk beyond those that were heard of, each as many tickets further as there are walks
FASTER = 8.0  # times as many in a heartbeat as ever before


class TicketLimit:
    """How far the present aggregator's tickets can go, as one node knows."""

    __slots__ = ("_ahead", "_beat", "_growth", "_highest", "_own")

    def __init__(self, own: Callable[[], int], walks: int) -> None:
        """`own`: the highest ticket that this node has written, if it aggregates. `walks`: how many there are."""
        self._own, self._ahead = own, TICKETS_AHEAD * walks
        self.new_term()

    def new_term(self) -> None:
        """Another node aggregates, and counts from 1 again."""
        self._highest = self._beat = 0
        self._growth = -1.0  # from one beat to the next, the most so far; below 0 while that is not known

    def hear(self, highest: int, beat: int) -> None:
        """A heartbeat that is new here says how far tickets go."""
        if self._beat:
            self._growth = max(self._growth, (highest - self._highest) / max(beat - self._beat, 1), 0.0)
        self._highest, self._beat = highest, beat

    def highest(self, leads: bool) -> int:
        """The highest ticket, as heartbeats are to say it."""
        return self._own() if leads else self._highest

    def believes(self, ticket: int, beats: float) -> bool:
        """Whether a ticket can have been written; `beats`: how many ago the last heartbeat came."""
        return self._growth < 0 or ticket <= self._highest + self._ahead + FASTER * self._growth * (
            1.0 + max(beats, 0.0)
        )
