"""Who is there and who aggregates: heartbeats gossiped along edges, adaptive time-outs, elections (Section 5).

The aggregator counts its heartbeats. Whoever hears of a new one passes it on at once, so it reaches everybody over any
path that is left, and every node learns from the intervals how long a silence may last (`timeouts`). The same messages
tell neighbours that a node lives and how many living neighbours it has. When nothing is passed on, a node speaks by
itself after one and a half intervals.

A silence that is too long starts an election (`heartbeats`): nodes flood the best candidate they know; when a node has
heard of no better one than itself for two intervals, it claims the next term. Claims are ordered, so an early or
mistaken one does no harm: the greatest wins wherever it is heard. And it seldom is mistaken: whoever has just heard of
the aggregator does not join, but says so, and who hears of it in the middle of an election gives its ballot up. So one
that was hung or cut off itself, and wakes, deposes nobody. Where all nodes were killed and start again, nobody knows an
aggregator: as soon as all neighbours have said so, there is nothing to wait for.

This is one part of a node's machine; it takes what happened and returns effects, as a machine does.
"""

from __future__ import annotations

import math

from walktalk.protocols.effects import Effect, Message, Note, Send, SetTimer
from walktalk.protocols.machine import NetworkView
from walktalk.protocols.mechanisms.attendance import Arrivals, Neighbourhood
from walktalk.protocols.mechanisms.tokens.heartbeats import (
    INCIDENTS,
    LARGEST,
    LEAP,
    NOBODY,
    Claim,
    Sightings,
    TicketLimit,
    View,
    candidate,
    decode,
    encode,
    later,
)

BEAT = "beat"  # kind of the message, and name of the timer
WATCH = "watch"  # timer: the aggregator's silence becomes suspicious
QUIET = "quiet"  # timer: the election has been without news for a while
TIMERS = (BEAT, WATCH, QUIET)

PAUSE = 1.5  # intervals after which a node speaks by itself
FRESH = 2.5  # intervals: whoever heard of the aggregator within them joins no election
CALM = 2.0  # intervals without a better candidate until the best one claims
MANY = 2  # times as many nodes as are known here there may be, where nodes come and go: others may know of more
FIRST = 10.0  # intervals to wait for the first heartbeat of all: nodes do not start at the same moment


class Membership:
    """What one node knows of its neighbours and of the aggregator."""

    __slots__ = (
        "around",
        "ballot",
        "beat",
        "called",
        "claim",
        "clueless",
        "granted",
        "incident_at",
        "incidents",
        "interval",
        "leaving",
        "neighbours",
        "news",
        "own",
        "past",
        "resources",
        "sightings",
        "tickets",
        "told",
        "towards",
    )

    def __init__(self, around: NetworkView, interval: float, sightings: Sightings, tickets: TicketLimit) -> None:
        """
        - `around`: what the node knows of its place.
        - `interval`: seconds between heartbeats.
        - `sightings`: when walks were seen. `tickets`: how far the aggregator's tickets go.
        """
        self.sightings, self.tickets = sightings, tickets
        self.around, self.interval, self.resources = around, interval, around.resources
        self.neighbours = Neighbourhood(around, PAUSE * interval, FIRST * interval)
        self.news = Arrivals(interval, 0.0)  # heartbeats of the aggregator
        self.claim, self.beat, self.ballot = NOBODY, 0, NOBODY
        self.own: Claim | None = None  # the claim that this node made, in this life
        self.incidents, self.incident_at = 0, -math.inf  # how often something went wrong, and when this was last heard
        self.towards = -1  # the neighbour that the aggregator's last heartbeat came from first
        self.told = False  # whether anybody was heard in this life
        self.granted: Claim | None = None  # a candidate that had its time to claim
        self.called = -math.inf  # when this node called an election
        self.past = 0  # the highest term that an earlier life of this node knew of
        self.clueless: set[int] = set()  # neighbours that know of no aggregator
        self.leaving = False  # whether this node is to leave for good: it aggregates no more

    @property
    def leads(self) -> bool:
        """Whether this node aggregates."""
        return self.claim == self.own

    @property
    def highest_term(self) -> int:
        """The highest term that this node knew in any of its lives: the next aggregator's is above it."""
        return max(self.claim.term, self.past)

    # -- what happens ---------------------------------------------------------------------------------------------

    def start(self, leader: int, now: float) -> list[Effect]:
        """Everybody begins with the aggregator of the specification, in term 1."""
        self.claim = Claim(1, NOBODY.score, -leader)
        if leader == self.around.node:
            self.own = self.claim
        return self.rejoin(now)

    def rejoin(self, now: float, past: int = 0) -> list[Effect]:
        """The node is back after a death: others will say who aggregates. `past`: the highest term known before."""
        self.past = past
        self.news = Arrivals(self.interval, now + FIRST * self.interval)
        self.neighbours.begin(now)
        return [SetTimer(BEAT, self.interval), SetTimer(WATCH, self.news.deadline() - now)]

    def resume(self, claim: Claim, beat: int, led: bool, now: float) -> list[Effect]:
        """The whole network was stopped and goes on: the node that aggregated then does so again."""
        self.claim, self.beat, self.own = claim, beat, claim if led else None
        self.sightings.resume(beat)
        self.tickets.new_term()
        return self.rejoin(now)

    def hear(self, sender: int, note: bytes, now: float) -> list[Effect]:
        """Take in what a neighbour's heartbeat says."""
        self.neighbours.check(sender)
        view = decode(note)
        self._check(view)
        if view.claim.term_id == self.claim.term_id:  # a better score for it, which nobody claimed, is no other
            view = view._replace(claim=self.claim)
        effects = self.neighbours.hear(sender, view.degree, now)
        if later(view.incidents, self.incidents):
            self.incidents, self.incident_at = view.incidents, now
            effects += self._tell_all()
        self._hear_sightings(view)
        effects += self._hear_claim(sender, view, now)
        effects += self._hear_ballot(sender, view.ballot, now)
        return effects + self._hear_that_nobody_knows(sender, view, now)

    def _hear_that_nobody_knows(self, sender: int, view: View, now: float) -> list[Effect]:
        """Call an election without a silence before it: neither a neighbour nor this node knows of an aggregator."""
        (self.clueless.add if view.claim == NOBODY else self.clueless.discard)(sender)
        if self.claim != NOBODY or self.ballot != NOBODY or not self.neighbours.living <= self.clueless:
            return []
        return self._call_election(now)

    def _check(self, view: View) -> None:
        """Raise `ValueError` for a heartbeat that cannot be; who has heard nobody yet must believe the first."""
        most = max(self.claim.term, self.ballot.term, self.past) + LEAP if self.told else LARGEST
        for claim in (view.claim, view.ballot):
            if claim.term > most or not (claim == NOBODY or self.around.knows(claim.node)):
                raise ValueError(f"node {claim.node} claims term {claim.term}; known is {self.claim.term}")
        if view.degree >= self.around.nodes * (MANY if self.around.first else 1):
            raise ValueError(f"a node of {self.around.nodes} has {view.degree} neighbours")
        self.told = True

    def timer(self, name: str, now: float) -> list[Effect]:
        """One of the timers of `TIMERS` has run out."""
        if name == BEAT:
            self.beat += self.leads and not self.leaving
            return self._tell_all(beats=True)
        return self._watch(now) if name == WATCH else self._election_is_quiet(now)

    def lost(self, peer: int, now: float) -> list[Effect]:
        """The runtime says that a neighbour is gone."""
        self.neighbours.lost(peer)
        return self._incident(now)

    def found(self, peer: int, now: float) -> list[Effect]:
        """The runtime says that a neighbour is back: send it a heartbeat at once."""
        self.neighbours.found(peer, now)
        return [Send(peer, self._message())]

    def silent(self, now: float) -> tuple[list[int], list[Effect]]:
        """Neighbours that have been silent for too long: they count as dead until they speak again, and all are told.

        To be asked at every beat, a node's own and the aggregator's: while the aggregator's are passed on, no node ever
        has to speak by itself, and a hung neighbour would go unnoticed.
        """
        gone = self.neighbours.fall_silent(now)
        return gone, self._incident(now) if gone else []

    # -- nodes join, and leave for good ---------------------------------------------------------------------------

    def change(self, around: NetworkView, now: float) -> tuple[list[int], list[Effect]]:
        """Take in who has joined and left; returns those that are no neighbours any more, and effects."""
        self.around, gone = around, self.neighbours.change(around, now)
        deposed = self.claim.node in around.leaving and self.ballot.term <= self.claim.term
        return gone, self._call_election(now) if deposed else self._tell_all()

    def leave(self, now: float) -> list[Effect]:
        """This node is to leave for good: it is no candidate any more, and says nothing new as an aggregator."""
        self.leaving = True
        self.ballot = NOBODY if self.ballot.node == self.around.node else self.ballot
        return self._tell_all()

    def _incident(self, now: float) -> list[Effect]:
        """Something went wrong here: tell everybody, for a walk may be lost."""
        self.incidents, self.incident_at = (self.incidents + 1) % INCIDENTS, now
        return self._tell_all()

    # -- the aggregator -------------------------------------------------------------------------------------------

    def _hear_sightings(self, view: View) -> None:
        """Take in what a heartbeat says of walks, before its claim is taken over and passed on with it."""
        if view.claim < self.claim:
            return
        nodes, sightings, new = self.around.nodes, self.sightings, view.claim > self.claim
        if new:
            sightings.new_term()
            self.tickets.new_term()
        if new or (view.beat > self.beat and not self.leads):
            sightings.passed_on(view.depth, nodes)
            self.tickets.hear(view.highest, view.beat)
        beat = view.beat if new else self.beat if self.leads else max(view.beat, self.beat)  # its own it knows best
        sightings.hear(view.sightings, beat)
        sightings.hear_depth(view.depth, view.deepest, beat, nodes)

    def _hear_claim(self, sender: int, view: View, now: float) -> list[Effect]:
        if view.claim < self.claim or (view.claim == self.claim and (view.beat <= self.beat or self.leads)):
            return []
        self.towards = sender
        if view.claim == self.claim:
            self.news.arrived(now)
            if self.claim.node not in self.around.leaving:
                self.ballot = NOBODY  # the aggregator lives
        else:
            self.news = Arrivals(self.interval, now)
        self.claim, self.beat = view.claim, view.beat
        if self.claim.node == self.around.node:  # others remember an earlier life; this one cannot go on from there
            return self._call_election(now)
        return [*self._tell_all(), SetTimer(WATCH, self.news.deadline() - now)]

    def _watch(self, now: float) -> list[Effect]:
        if self.leads or self.leaving or self.ballot.term > self.claim.term:
            return []
        if not self.news.overdue(now):
            return [SetTimer(WATCH, self.news.deadline() - now)]
        return [Note("suspected", peer=self.claim.node, number=self.claim.term), *self._call_election(now)]

    def believes(self, ticket: int, now: float) -> bool:
        """Whether the present aggregator can have written this ticket."""
        return self.leads or self.tickets.believes(ticket, (now - self.news.last) / self.interval)

    # -- the election ---------------------------------------------------------------------------------------------

    def _call_election(self, now: float) -> list[Effect]:
        if self.leaving:
            return self._tell_all()
        term = min(max(self.highest_term, self.ballot.term, 1) + 1, LARGEST)  # 1 is the specification's, and used up
        self.ballot, self.called = self._myself(term), now
        return [*self._tell_all(), SetTimer(QUIET, CALM * self.interval)]

    def _hear_ballot(self, sender: int, heard: Claim, now: float) -> list[Effect]:
        if heard.term <= self.claim.term or heard <= self.ballot or heard.node in self.around.leaving:
            return []
        if self._is_past(heard.term):
            return self._call_election(now)
        stays = self.leads and not self.leaving
        if stays or (self.ballot.term <= self.claim.term and self._heard_just_now(now)):
            return [Send(sender, self._message())]
        joins = heard.term > self.ballot.term
        self.ballot = max(heard, self._myself(heard.term)) if joins and not self.leaving else heard
        return [*self._tell_all(), SetTimer(QUIET, CALM * self.interval)]

    def _is_past(self, term: int) -> bool:
        """Whether this node knew of that term before it died: all have died since, and who proposes it knows less.

        (Where a disk is full, an old checkpoint stays.) Terms must not repeat, so this one calls the election.
        """
        return self.claim == NOBODY and term <= self.past

    def _heard_just_now(self, now: float) -> bool:
        """Whether the aggregator's last heartbeat is so fresh that nobody can miss it yet."""
        if self.claim.node in self.around.leaving:
            return False
        return self.told and self.claim != NOBODY and self.news.last > now - FRESH * max(self.news.mean, self.interval)

    def _election_is_quiet(self, now: float) -> list[Effect]:
        if self.ballot.term <= self.claim.term:
            return []  # somebody has claimed meanwhile
        if self.ballot.node == self.around.node:
            if self._is_alone():
                return [SetTimer(QUIET, CALM * self.interval)]
            self.claim = self.own = self.ballot
            self.beat = 1
            self.sightings.new_term()
            self.tickets.new_term()
            elected = Note("elected", peer=self.around.node, number=self.claim.term)
            return [elected, *self._tell_all(beats=True)]
        if self.granted == self.ballot:
            return self._call_election(now)  # it must be dead; without it, it will not be proposed again
        self.granted = self.ballot
        return [SetTimer(QUIET, self.news.patience)]

    def _is_alone(self) -> bool:
        """Whether no neighbour has said anything since the election was called, of which all were told.

        One that is cut off itself would claim a term of its own, miss all walks and begin them anew, and be believed
        by all others as soon as it is back. It waits: who comes back says who aggregates, or joins the election.
        """
        return self.neighbours.is_silent_since(self.called)

    def _myself(self, term: int) -> Claim:
        return candidate(term, self.around.node, len(self.neighbours.living), self.resources)

    # -- speaking -------------------------------------------------------------------------------------------------

    def _tell_all(self, beats: bool = False) -> list[Effect]:
        """Send a heartbeat to everybody that can be sent to, now.

        It stands for the next one of a node that speaks by itself. Not for the aggregator's, unless it `beats`: only
        its own timer counts its beats, and where incidents came faster, it would never come to the next.
        """
        message = self._message()
        sent: list[Effect] = [Send(peer, message) for peer in self.neighbours.reachable()]
        if self.leads and not beats:
            return sent
        return [*sent, SetTimer(BEAT, self.interval if self.leads else PAUSE * self.interval)]

    def _message(self) -> Message:
        seen = self.sightings
        seen.look(self.beat)
        around = (len(self.neighbours.living), self.incidents, seen.depth, seen.deepest)
        return Message(
            BEAT,
            term=self.claim.term,
            note=encode(
                View(self.claim, self.beat, self.ballot, *around, tuple(seen.beats), self.tickets.highest(self.leads))
            ),
        )
