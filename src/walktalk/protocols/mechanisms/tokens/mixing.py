"""The aggregator's part of Algorithm 1 in a world with failures: copies, tickets, and who is let in.

While nothing fails these are lines 2 and 7 to 10 of Algorithm 1, to the letter. A new aggregator (Section 5) begins
with no copies: the first walk that arrives initialises all of them, and every other walk is mixed against that. With
u the latest copy, after every visit

    u = start + (1/R) · (sum of all updates that came back in accepted visits of this term)

where `start` is the initial model, or the model of that first walk; what a lost walk had learned since its last visit
is lost, and nothing is ever in there twice, because a ticket is accepted once. A walk of an earlier term that comes
for the first time after another was started in its place is mixed in as if it had come before, once for each number.

Where a network was split, each part had an aggregator, and learned. When they meet, the one whose claim is smaller
steps down, and its latest copy, its *handover*, goes to the other, who takes the mean of both, weighted by the updates
that came to each since the later of the two began: nothing is counted twice, and what either part learned is kept.
So it is with walks: whichever copy of a walk comes first is that walk, and every other that was on its way then, with
another aggregator's ticket, is averaged in by its updates, and ends here; and so does one that comes after another,
with a ticket that is used up (`guards`). A mean counts nothing twice.

A walk may be lost with its node, or end because somebody lied about it, while a copy of it is left elsewhere. That copy
comes here (`handovers`) and is kept as a *spare*. If the walk is given up, the spare stands in for it, as if it had
come late; and should it come after all, what it has learned since is added. If the walk comes first, a spare is a
second copy like others, unless it is only what the walk had been when it went to a node that seemed dead.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from walktalk.protocols.effects import AGGREGATE, INITIAL, Combine, Effect, Forget, Note, Record, absorb
from walktalk.protocols.mechanisms.tokens.guards import Arrived, ArrivedCopies, Guard, further
from walktalk.protocols.mechanisms.tokens.hops import NO_TERM, Token, ticket_after
from walktalk.protocols.mechanisms.tokens.rule import NOTHING, WalkRule, copy_slot, share_of_a_walk, walk_slot

REMEMBERED = 4096  # visits whose time is known
LONGEST = 10.0  # times as many visits as this node would have had in the same time are believed
MOST = 0.9  # of the mean that another part can be
HALF = 0.5  # and that it can be where not all walks have come
FEW = 1_000  # updates: who has had fewer believes others that they have had nine times as many
AWAITED = "awaited"  # slot: what walks of earlier terms are compared with that were given up before they came


def missed_slot(walk: int) -> str:
    """The slot of what a walk that was given up had left with: it may come back after all."""
    return f"missed/{walk}"


def spare_slot(walk: int) -> str:
    """The slot of what is left elsewhere of a walk that is out."""
    return f"spare/{walk}"


class GivenUp(NamedTuple):
    """A walk that left from here and was given up; it may come back after all."""

    ticket: int  # that it left with
    hop: int = -1  # of what stands in for it: one that is no further brings nothing


@dataclass
class TermMixer:
    """What a node does as the aggregator of one term: which walks it knows, and what it wrote on them."""

    walks: int  # R
    term_id: tuple[int, int]  # the term and the node
    guard: Guard
    rule: WalkRule
    latest: int = 0  # l; 0 while there is no copy
    tickets: dict[int, int] = field(default_factory=dict)  # the last one that was written on each walk
    generations: dict[int, int] = field(default_factory=dict)
    updates: int = 0  # that came to this aggregator
    left: float = 1.0  # of the mean, to what walks bring that come for the first time: the rest was averaged in
    visits: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))  # when; `updates` then
    missing: dict[int, GivenUp] = field(default_factory=dict)  # by walk: the one that was last given up
    awaited: set[int] = field(default_factory=set)  # walks that were given up before they came for the first time
    met: ArrivedCopies = field(default_factory=ArrivedCopies)  # copies that came, by what tells them apart
    spares: dict[int, Token] = field(default_factory=dict)  # by walk that is out: what is left of it elsewhere

    def begin_afresh(self, now: float) -> list[Effect]:
        """Lines 2 and 3: the first aggregator of a run; all walks are out, with ticket 0."""
        self.latest = 1
        for walk in self.everyone():
            self.tickets[walk] = 0
            self.met[walk, self.term_id, 0] = Arrived()
            self.guard.leaves(walk, now)
        copies: list[Effect] = [Combine(copy_slot(walk), {INITIAL: 1.0}) for walk in self.everyone()]
        return [*copies, Record(AGGREGATE, self.term_id[0], copy_slot(self.latest))]

    def await_walks(self, now: float) -> None:
        """A new aggregator: from now on it waits for every walk."""
        for walk in self.everyone():
            self.guard.leaves(walk, now)

    def admits(self, here: Token) -> bool:
        """Whether a walk may be mixed: it has the last ticket, or none of this term was written for it yet."""
        if here.term_id == self.term_id:
            return self.tickets.get(here.walk) == here.ticket
        return here.term_id == NO_TERM or here.walk not in self.tickets

    def never_wrote(self, here: Token) -> bool:
        """Whether a ticket claims to be of this term and was never written."""
        return here.term_id == self.term_id and here.ticket > self.tickets.get(here.walk, 0)

    def mix(self, here: Token, now: float) -> list[Effect]:
        """Lines 7 to 10, for a walk that is admitted; `stamped` then says what it carries away."""
        slot, mine = walk_slot(here.walk), copy_slot(here.walk)
        if not self.latest:
            effects: list[Effect] = [Combine(copy_slot(walk), {slot: 1.0}) for walk in self.everyone()]  # Section 5
        elif here.term_id == NO_TERM:  # a fork shares updates with another walk: only what it learns from now on counts
            effects = [Combine(slot, {copy_slot(self.latest): 1.0}), Combine(mine, {slot: 1.0})]
        else:
            part = 1.0 if here.walk in self.tickets else self.left
            effects = self.rule.mix(here.walk, self.latest, share_of_a_walk(self.walks, part))  # lines 8 and 9
            if here.term_id == self.term_id:
                effects.append(Note("counted", walk=here.walk, number=self.term_id[0]))
        self.latest = here.walk  # line 10
        self.updates += self._learned(here, now)
        self.met.comes(here)
        spared = self._beside(here.walk, now)
        self._issue(here.walk, now)
        self.visits.append((now, self.updates))
        return [*effects, Record(AGGREGATE, self.term_id[0], mine), *spared]

    def updates_since(self, moment: float) -> int:
        """How many updates came after a moment; of one that is too long ago, as many as are remembered."""
        before = [count for when, count in self.visits if when <= moment]
        first = self.visits[0][1] if self.visits and len(self.visits) == REMEMBERED else 0
        return self.updates - max(before, default=first)

    def inherit(self, handover: Token, slot: str, again: bool = False) -> list[Effect]:
        """Another part of the network brings what it learned; its ticket says how many updates that are.

        The mean of both is in a slot of its own, as if a further walk had been the latest: every walk is still compared
        with the copy that it left with, and one that has not been here yet with what was here first; but such walks
        share what is left of that, or they would take away what was brought. So it has half of the mean at most while
        walks are still to come; and no more than one of them where it is sent again, since they may have brought it.
        """
        brought = min(
            handover.ticket, int(max(self.updates, FEW) * MOST / (1.0 - MOST))
        )  # what is forged counts no more
        young = bool(self.awaited) or len(self.tickets) < self.walks
        most = share_of_a_walk(self.walks) if again else HALF if young else MOST
        share = min(brought / max(self.updates + brought, 1), most)
        self.updates += 0 if again else brought
        return [*self._average(slot, share), Note("inherited", peer=handover.term_id[1], number=handover.ticket)]

    def readmits(self, token: Token) -> bool:
        """Whether this is a walk that was given up and comes after all, or a copy with a ticket that is used up."""
        met = self.met.of(token)
        if token.term_id == self.term_id:
            known = met is not None and (bool(met.hops) or token.ticket != self.tickets.get(token.walk))
        else:
            known = self.met.has_room(token) and NO_TERM[0] < token.term_id[0] <= self.term_id[0]
        return self._is_missing(token) or (known and (met is None or met.takes(token.hop)))

    def readmit(self, token: Token, slot: str, now: float = math.inf) -> list[Effect]:
        """Mix in what such a walk learned since it left, as in line 8 if it left from here and no other came for it."""
        told = Note("readmitted", walk=token.walk, number=token.ticket)
        learned, exact = self._learned(token, now), self._is_missing(token)
        share = 0.0 if exact else self.met.share(token, learned, self.updates, self.walks)
        self.updates += learned
        self.met.comes(token, share)
        if exact:
            del self.missing[token.walk]
            return [told, *self._mix_late(slot, missed_slot(token.walk)), Forget(missed_slot(token.walk))]
        if self._is_awaited(token):
            return [told, *self._mix_awaited(token.walk, slot)]
        return [told, *self._average(slot, share)]

    def _is_missing(self, token: Token) -> bool:
        """Whether this walk was given up, and is further than what stands in for it."""
        given_up = self.missing.get(token.walk)
        if given_up is None or token.term_id != self.term_id:
            return False
        return token.ticket == given_up.ticket and token.hop > given_up.hop

    def _is_awaited(self, token: Token) -> bool:
        """Whether this walk comes for the first time, after another was started in its place."""
        return token.term_id != self.term_id and token.walk in self.awaited

    def _beside(self, walk: int, now: float) -> list[Effect]:
        """This walk has come: what was left of it elsewhere counts only if it is another copy."""
        spare = self.spares.pop(walk, None)
        if spare is None:
            return []
        counts = spare.carried == NOTHING and self.readmits(spare)
        return [*(self.readmit(spare, spare_slot(walk), now) if counts else []), Forget(spare_slot(walk))]

    def _stand_in(self, spare: Token, now: float) -> list[Effect]:
        """What is left of a walk elsewhere stands in for it, now that it is given up."""
        walk, slot = spare.walk, spare_slot(spare.walk)
        self.updates += self._learned(spare, now)
        self.met.comes(spare)
        if self._is_awaited(spare):
            effects = self._mix_awaited(walk, slot)
        else:
            effects = [*self._mix_late(slot, missed_slot(walk)), Combine(missed_slot(walk), {slot: 1.0})]
            self.missing[walk] = self.missing[walk]._replace(hop=spare.hop)
        return [*effects, Note("stood_in", walk=walk, number=spare.ticket)]

    def spare(self, token: Token, slot: str) -> list[Effect]:
        """A copy of a walk that is out has ended elsewhere: kept until that walk comes, or is given up."""
        known = self.spares.get(token.walk)
        if token.term_id == NO_TERM or not self.admits(token) or (known is not None and not further(token, known)):
            return []
        self.spares[token.walk] = token
        return [Combine(spare_slot(token.walk), {slot: 1.0})]

    def _learned(self, token: Token, now: float) -> int:
        """How many updates a walk brings: as many as it says, if there was time for them."""
        pace, left = self.guard.times.pace, self.guard.away.get(token.walk)
        there_was_time = LONGEST * (now - left) / pace if pace and left is not None else math.inf
        return int(min(token.hop, LONGEST + max(there_was_time, 0.0))) + 1

    def _mix_late(self, slot: str, left_with: str, part: float = 1.0) -> list[Effect]:
        """Line 8 for a walk whose number another walk has by now, with this part of 1/R; the result is no copy."""
        merged = copy_slot(self.walks + 1)
        mixed = absorb(merged, copy_slot(self.latest), share_of_a_walk(self.walks, part), slot, left_with)
        self.latest = self.walks + 1
        return [mixed, Record(AGGREGATE, self.term_id[0], merged)]

    def _mix_awaited(self, walk: int, slot: str) -> list[Effect]:
        """Line 8 for a walk that was given up before it came for the first time."""
        self.awaited.remove(walk)
        return [*self._mix_late(slot, AWAITED, self.left), *([] if self.awaited else [Forget(AWAITED)])]

    def _average(self, slot: str, share: float) -> list[Effect]:
        """Average the latest copy with another model, which has this share of the mean."""
        merged, copies = copy_slot(self.walks + 1), (*self.everyone(), self.walks + 1)
        if not self.latest:
            effects: list[Effect] = [Combine(copy_slot(walk), {slot: 1.0}) for walk in copies]
            self.left = 1.0 - share
        else:
            effects = [Combine(merged, {copy_slot(self.latest): 1.0 - share, slot: share})]
            self.left *= 1.0 - share
        self.latest = self.walks + 1
        return [*effects, Record(AGGREGATE, self.term_id[0], merged)]

    def restart(self, walk: int, fallback: str, now: float) -> list[Effect]:
        """A lost walk begins again here, from the latest mixed model, or from the fallback where there is none."""
        slot, spare = walk_slot(walk), self.spares.pop(walk, None)
        effects: list[Effect] = []
        if not self.latest:
            fallback = fallback if spare is None else spare_slot(walk)
            effects = [Combine(copy_slot(each), {fallback: 1.0}) for each in self.everyone()]
            effects.append(Record(AGGREGATE, self.term_id[0], copy_slot(walk)))
            self.latest = walk
        if walk in self.tickets:
            self.missing[walk] = GivenUp(self.tickets[walk])
            effects.append(Combine(missed_slot(walk), {copy_slot(walk): 1.0}))
        else:  # one of an earlier term may be on its way; the copies of all that have not come are the same
            self.awaited.add(walk)
            effects.append(Combine(AWAITED, {copy_slot(walk): 1.0}))
        if spare is not None:
            effects += [*self._stand_in(spare, now), Forget(spare_slot(walk))]
        effects += [Combine(slot, {copy_slot(self.latest): 1.0}), Combine(copy_slot(walk), {slot: 1.0})]
        self.generations[walk] = self.generations.get(walk, 0) + 1
        self._issue(walk, now)
        return [*effects, Note("restarted", walk=walk, number=self.generations[walk])]

    def stamped(self, walk: int) -> Token:
        """The token of a walk that leaves."""
        return Token(walk, self.term_id, self.tickets[walk], 0, self.generations.get(walk, 0))

    def end(self) -> list[Effect]:
        """Another node aggregates now: all copies are dropped."""
        copies = [copy_slot(walk) for walk in (*self.everyone(), self.walks + 1)]
        awaited = (AWAITED,) if self.awaited else ()
        kept = (*map(missed_slot, self.missing), *map(spare_slot, self.spares))
        return [Forget(slot) for slot in (*copies, *kept, *awaited)]

    def everyone(self) -> range:
        """The numbers of all walks."""
        return range(1, self.walks + 1)

    def _issue(self, walk: int, now: float) -> None:
        ticket = ticket_after(self.tickets.get(walk, 0), walk, self.walks)
        self.tickets[walk] = ticket
        self.met.leaves(Token(walk, self.term_id, ticket), self.updates, self.walks)
        self.guard.leaves(walk, now)
