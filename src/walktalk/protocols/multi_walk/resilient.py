"""Multi-Walk where nodes and messages are lost: Algorithm 1 and Section 5 of the paper, put together.

A node is made of parts that each answer for one thing: `membership` (who lives, who aggregates), `hops` (no walk is
lost on the way), `walk_copies` (what an arriving walk is worth), `aggregation` (what is mixed), `walk_keeper` (which
walks are dead, and what is done about it). While nothing fails, the models are exactly those of `multi_walk`: the same
trainings, the same steps, the same sums.
"""

from __future__ import annotations

from collections.abc import Iterable

from walktalk.protocols.effects import AGGREGATE, INITIAL, MEMBER, Combine, Effect, Note, Record, Send
from walktalk.protocols.events import (
    Event,
    Leaving,
    NetworkChanged,
    PeerFound,
    PeerLost,
    Received,
    Rejoined,
    Started,
    TimerFired,
    Trained,
)
from walktalk.protocols.machine import Outside, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.multi_walk.aggregation import copy_slot
from walktalk.protocols.multi_walk.election import LEAP, NOBODY
from walktalk.protocols.multi_walk.farewell import Farewell, reign_facts, remembered, resumed
from walktalk.protocols.multi_walk.legacies import LAST
from walktalk.protocols.multi_walk.membership import BEAT, TIMERS
from walktalk.protocols.multi_walk.population import LATE
from walktalk.protocols.multi_walk.visits import (
    NOTHING,
    Carried,
    Slots,
    forgotten,
    in_slot,
    kept_slot,
    moved,
    next_slot,
    walk_slot,
)
from walktalk.protocols.multi_walk.walk_guard import PRIOR, Guard
from walktalk.protocols.multi_walk.walk_keeper import GUARD, WalkKeeper
from walktalk.protocols.multi_walk.walk_pass import ACK, NO_REIGN, WALK, Pass, answer_to, is_ticket_of, pass_of

REMEMBERED = 20.0  # heartbeats that a node remembers which copies of walks came: longer than any message is repeated
MESSAGES = {WALK: Arrival("in/{walk}"), ACK: Arrival(), BEAT: Arrival()}


def messages_with(luggage: tuple[str, ...]) -> dict[str, Arrival]:
    """Those of walks that carry more than their model."""
    return {**MESSAGES, **{kind: Arrival(f"in/{kind}/{{round}}") for kind in luggage}}


class ResilientNode(WalkKeeper):
    """Any node; the one that is elected also mixes."""

    __slots__ = ()

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        incidents = self.members.incidents
        self.members.resources = outside.resources or self.members.resources
        effects = self._react(event, outside)
        if self.members.claim.reign != self.copies.reign:
            effects += self._new_reign(outside)
        elif self.members.incidents != incidents:
            effects += self._watch_walks(outside.now)
        return effects

    def refused(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """Its sender need not keep it: a walk that is no model any more is lost, and started again."""
        if message.kind == WALK:
            return [Send(sender, answer_to(pass_of(message)))]
        what, _ = self.came.pop(message.round, (None, -1))  # a walk without its luggage is none either
        return [Send(sender, answer_to(what))] if what is not None else []

    def has_work(self) -> bool:
        """Where lost walks are started again there always is."""
        return self.guards or self.creates or bool(self.copies.here or self.copies.next or self.hops.leaving)

    def may_go(self) -> bool:
        """When it aggregates no more, and all walks that were here, and what it had aggregated, are with others."""
        return self.reign is None and not (self.copies.here or self.copies.next or self.hops.leaving)

    def keepsake(self) -> bytes:
        """Whether there is a model in `LAST`, and the term."""
        return Farewell(self.trained, term=self.members.term).short()

    def farewell(self) -> bytes:
        """The walks that are here, and the reign."""
        copies, members, leaving = self.copies, self.members, self.hops.leaving.values()
        here = tuple(what for walk, what in copies.here.items() if walk not in copies.next)
        reign = reign_facts(self.reign) if self.reign is not None else None
        walks = here, tuple(copies.next.values()), tuple(hop.what for hop in leaving)
        return Farewell(self.trained, *walks, members.claim, members.beat, reign).encode()

    def _react(self, event: Event, outside: Outside) -> list[Effect]:
        match event:
            case Received():
                return self._received(event, outside)
            case Trained():
                return self._trained(event, outside)
            case TimerFired(name):
                return self._timer(name, outside)
            case Started(late=False):
                return self._start(outside)
            case Started():  # its walk is long on its way, and somebody aggregates
                return self.members.rejoin(outside.now)
            case Rejoined(memory):
                return self._rejoin(remembered(memory), outside)
            case PeerLost(peer):
                effects = [*self.members.lost(peer, outside.now), *self._reroute(self.hops.to(peer), outside)]
                return effects + self.legacies.bereaved(peer, self.reign, outside)
            case PeerFound(peer):
                return self.members.found(peer, outside.now)
            case NetworkChanged(around):
                return self._change(around, outside)
            case Leaving():
                return [*self.members.leave(outside.now), *self._part(outside)]

    def _part(self, outside: Outside) -> list[Effect]:
        """What this node keeps for the next aggregator goes now: it will not be here then. One that has it drops it."""
        if self.reign is not None:  # that goes when this node steps down
            return []
        return [*self.legacies.send_own(None, outside), *self.legacies.send_remains(None, outside)]

    def _start(self, outside: Outside) -> list[Effect]:
        """Lines 1 to 3: walk r (counted from 1) starts at node r − 1."""
        around, now = self.around, outside.now
        effects = self.members.start(self.aggregator, now)
        first = self.members.claim.reign
        self.copies.new_reign(first)
        if self.members.leads:
            self.reign = self._make_reign(first)
            effects += [*self.reign.begin_afresh(now), *self._watch_walks(now)]
        if around.node < self.walks:
            walk = around.node + 1
            slot = walk_slot(walk)
            what = Pass(walk, first, 0, carried=Carried(more=self.visiting.first))
            effects += (Combine(slot, {INITIAL: 1.0}), Record(MEMBER, walk, slot), *self._visit(what, outside))
        return effects + self._wait_for_walks(now)

    def _rejoin(self, past: Farewell, outside: Outside) -> list[Effect]:
        """Back from the dead: the walks that were here are elsewhere or lost. Who left in order has them."""
        self.trained = past.trained
        self.visiting.rejoined()
        kept: dict[Slots, tuple[Pass, ...]] = {walk_slot: past.here, next_slot: past.next, kept_slot: past.leaving}
        dropped: list[Effect] = []
        for place, walks in kept.items():
            gone = {*range(1, self.walks + 1)} - {what.walk for what in walks}
            dropped += [effect for walk in sorted(gone) for effect in forgotten(walk, self.visiting.luggage, place)]
        if past.claim == NOBODY:
            return [*dropped, *self.members.rejoin(outside.now, past.term), *self._wait_for_walks(outside.now)]
        return [*dropped, *self._resume(past, outside), *self._wait_for_walks(outside.now)]

    def _resume(self, past: Farewell, outside: Outside) -> list[Effect]:
        """Go on where this node was when it left."""
        now, luggage, led = outside.now, self.hops.luggage, past.reign is not None
        effects = self.members.resume(past.claim, past.beat, led, now)
        self.copies.new_reign(past.claim.reign)
        if past.reign is not None:
            self.reign = resumed(past.reign, self.walks, past.claim.reign, Guard(self.times), now)
            if self.reign.latest:
                effects.append(Record(AGGREGATE, past.claim.term, copy_slot(self.reign.latest)))
            effects += self._watch_walks(now)
        for what in (*past.here, *past.next):
            if what in past.next:
                effects += moved(what.walk, luggage, next_slot, walk_slot)
            self.copies.accept(what, now)
            effects += [Record(MEMBER, what.walk, walk_slot(what.walk)), *self._visit(what, outside)]
        for what in past.leaving:
            effects += self._send_on(what, kept_slot, outside)
        return effects

    def _change(self, around: Surroundings, outside: Outside) -> list[Effect]:
        """Other neighbours from now on: walks on their way to one that is none any more go elsewhere."""
        self.around = self.legacies.around = around
        self.times.assumed = PRIOR * around.nodes * self.pace
        if self.lateness is not None:
            self.lateness.nodes = around.nodes
        gone, effects = self.members.change(around, outside.now)
        for peer in gone:
            effects += self._reroute(self.hops.to(peer), outside)
        return effects

    def _visit(self, what: Pass, outside: Outside) -> list[Effect]:
        """A walk is in its slots: it is trained here, or runs on at once."""
        walk, carried = what.walk, what.carried
        if carried.jumps:
            return self._move_on(what, walk_slot, outside)
        effects, more = self.visiting.work(walk, carried.more, outside.random)
        self.members.sightings.saw(walk, self.members.beat)  # one that was just started again is not missing
        self.copies.here[walk] = what if more == carried.more else what._replace(carried=Carried(more=more))
        self.begun[walk] = outside.now
        return effects

    def _timer(self, name: str, outside: Outside) -> list[Effect]:
        if name in TIMERS:
            effects = self.members.timer(name, outside.now)
            if name != BEAT:
                return effects
            return [*effects, *self._tidy(outside), *self._look_for_lost_walks(outside)]
        if name == GUARD:
            return self._look_for_lost_walks(outside)
        if name == LATE:
            return self._create(outside)
        walk = int(name.rpartition("/")[2])
        hop = self.hops.leaving.get(walk)
        if hop is None:
            return []
        return self.hops.again(walk) if hop.to in self.members.living else self._reroute([walk], outside)

    def _tidy(self, outside: Outside) -> list[Effect]:
        """At every beat, a node's own and the aggregator's: while those are passed on, a node never beats by itself."""
        self.copies.forget_old(outside.now, REMEMBERED * self.members.interval)
        return [*self.legacies.forget_own(outside.now), *self._leave_out_the_silent(outside)]

    def _leave_out_the_silent(self, outside: Outside) -> list[Effect]:
        """Neighbours that say nothing any more get no walks; what is on its way to them goes elsewhere."""
        gone, effects = self.members.silent(outside.now)
        for peer in gone:
            effects += [Note("silent", peer=peer), *self._reroute(self.hops.to(peer), outside)]
        return effects

    # -- walks come -----------------------------------------------------------------------------------------------

    def _received(self, event: Received, outside: Outside) -> list[Effect]:
        message, now = event.message, outside.now
        if message.kind == BEAT:
            beat = self.members.beat
            effects = self.members.hear(event.sender, message.note, now)
            return effects if self.members.beat == beat else [*effects, *self._tidy(outside)]
        effects = self.members.sign_of_life(event.sender, now)
        if message.kind in self.hops.luggage:
            self.parts.setdefault(self._known(message.round), {})[message.kind] = message.note
            return effects + self._if_whole(message.round, outside)
        what = pass_of(message)
        if message.kind == ACK:
            return effects + self.hops.acknowledged(what, event.sender, now)
        self._check(what)
        if what.walk > self.walks:
            return effects + self.legacies.comes(what, event.sender, self.reign, outside)
        if what.reign[0] > self.members.claim.term:
            # Nobody here has heard of its aggregator. It is not answered, so it will come again, and a heartbeat before
            # it; one of a term that is forged will not.
            self.came.pop(what.walk, None)
            return effects + forgotten(what.walk, self.hops.luggage, in_slot)
        self.came[what.walk] = (what, event.sender)
        return effects + self._if_whole(what.walk, outside)

    def _check(self, what: Pass) -> None:
        """Refuse what cannot be: `ValueError`."""
        if not self.legacies.is_number(what.walk, what.reign[1]):
            self._known(what.walk)
        if what.walk <= self.walks and not is_ticket_of(what.ticket, what.walk, self.walks):
            raise ValueError(f"walk {what.walk} has no ticket {what.ticket}")
        known = what.reign[1] == NO_REIGN[1] or self.around.knows(what.reign[1])
        if not known or what.reign[0] > self.members.claim.term + LEAP:
            raise ValueError(f"node {what.reign[1]} does not aggregate in term {what.reign[0]}")

    def _known(self, walk: int) -> int:
        if not 1 <= walk <= self.walks:
            raise ValueError(f"there is no walk {walk}")
        return walk

    def _if_whole(self, walk: int, outside: Outside) -> list[Effect]:
        """Acknowledge a walk that has come with all its luggage; until then it will be sent again."""
        what, sender = self.came.get(walk, (None, -1))
        if what is None:
            return []
        labels, luggage = self.parts.get(walk, {}), self.hops.luggage
        if not self.copies.repeats(what) and any(labels.get(kind) != what.label for kind in luggage):
            return []
        del self.came[walk]
        self.parts.pop(walk, None)
        return [Send(sender, answer_to(what)), *self._arrives(what, outside)]

    def _arrives(self, what: Pass, outside: Outside) -> list[Effect]:
        walk, copies, luggage = what.walk, self.copies, self.hops.luggage
        if copies.repeats(what):
            return forgotten(walk, luggage, in_slot)
        never = self.reign is not None and self.reign.never_wrote(what)
        forged = what.reign == copies.reign and not self.members.believes(what.ticket, outside.now)
        if copies.lags(what, self.hops.what(walk)) or never or forged:
            disputed = forged or copies.is_stale(what)
            return self.legacies.of_walk(what, in_slot, self.reign, outside, disputed)
        copies.accept(what, outside.now)
        self.members.sightings.saw(walk, self.members.beat)
        effects = self.hops.give_up(walk) if walk in self.hops.leaving else []
        if walk in copies.here:
            copies.next[walk] = what
            return [*effects, *moved(walk, luggage, in_slot, next_slot)]
        move = moved(walk, luggage, in_slot, walk_slot)
        return [*effects, *move, Record(MEMBER, walk, walk_slot(walk)), *self._visit(what, outside)]

    # -- walks are trained and go ---------------------------------------------------------------------------------

    def _trained(self, event: Trained, outside: Outside) -> list[Effect]:
        walk, now, luggage = event.walk, outside.now, self.hops.luggage
        slot = walk_slot(walk)
        what = self.copies.here.pop(walk, None)
        newer = self.copies.next.pop(walk, None)
        if newer is not None:  # the copy that was trained is out of date
            begin = (*moved(walk, luggage, next_slot, walk_slot), Record(MEMBER, walk, slot))
            return [*self._ends(what, event, outside), *begin, *self._visit(newer, outside)]
        if what is None:
            return forgotten(walk, luggage, walk_slot)
        self._learn_pace(now - self.begun.pop(walk, now))
        reign = self.reign
        if reign is not None and what.reign[0] > reign.name[0]:
            reign = None  # somebody else aggregates, of whom this node has not heard yet
        if reign is not None and not reign.admits(what):
            late = reign.readmits(what) and not self.visiting.noted
            learned = self.visiting.learn(event, what.carried.more)[0] if late else []
            counts = [*learned, *reign.readmit(what, slot, now)] if late else []
            return [*counts, *forgotten(walk, luggage, walk_slot), Note("retired", walk=walk, number=what.ticket)]
        effects, more = self.visiting.learn(event, what.carried.more)  # line 6
        if reign is not None:
            effects += reign.mix(what, now)
            what = reign.stamped(walk)
            self.copies.remember(what, now)
        what = what._replace(carried=Carried(more=more))
        self.times.visit(walk, (what.reign, what.generation), now)
        effects += (Record(MEMBER, walk, slot), Combine(LAST, {slot: 1.0}))
        self.trained = True
        effects += [*self._multiply(walk, outside), *self._move_on(what, walk_slot, outside)]
        self.legacies.trained(walk)
        return effects

    def _ends(self, what: Pass | None, event: Trained, outside: Outside) -> list[Effect]:
        """A later copy of this walk has come while it was trained."""
        if what is None or self.visiting.noted:
            number = what.ticket if what is not None else 0
            retired = Note("retired", walk=event.walk, number=number)
            return [*forgotten(event.walk, self.hops.luggage, walk_slot), retired]
        learned, _ = self.visiting.learn(event, what.carried.more)
        disputed = self.copies.is_stale(what)
        return [*learned, *self.legacies.of_walk(what.moved(), walk_slot, self.reign, outside, disputed)]

    def _take_back(self, what: Pass, slot: str, outside: Outside) -> list[Effect]:
        walk, now, reign = what.walk, outside.now, self.reign
        if reign is None or walk in self.copies.here or walk in self.copies.next:
            return []
        effects = self.hops.give_up(walk) if walk in self.hops.leaving else []
        effects += [Combine(walk_slot(walk), {slot: 1.0}), Note("taken_back", walk=walk, number=what.ticket)]
        effects += reign.mix(what, now)
        stamped = reign.stamped(walk)
        self.copies.remember(stamped, now)
        self.members.sightings.saw(walk, self.members.beat)
        return [*effects, Record(MEMBER, walk, walk_slot(walk)), *self._move_on(stamped, walk_slot, outside)]

    def _move_on(self, what: Pass, at: Slots, outside: Outside) -> list[Effect]:
        """Lines 11 and 12, on the graph that is left."""
        me, (peers, degrees) = self.around.node, self.members.row()
        to, jumps = self.stepping.step(me, peers, degrees, what.carried.jumps, outside.random)
        if to != me:
            gone = what.moved()._replace(carried=what.carried._replace(jumps=jumps))
            return self.hops.send(gone, at, to, outside.now)
        stay = [] if at is walk_slot else moved(what.walk, self.hops.luggage, at, walk_slot)
        return [*stay, *self._visit(what._replace(carried=what.carried._replace(jumps=0)), outside)]

    def _reroute(self, walks: Iterable[int], outside: Outside) -> list[Effect]:
        """These were on their way to a node that is dead."""
        effects: list[Effect] = []
        for walk in walks:
            hop = self.hops.leaving.pop(walk, None)
            if hop is None:  # one of the others was what is left of it, and it has begun again here with that
                continue
            effects.append(Note("rerouted", walk=walk, peer=hop.to))
            # It may have been there already, and go on from there: what nodes noted of it is that copy's from now on.
            what = hop.what._replace(carried=NOTHING) if walk <= self.walks else hop.what
            effects += self._send_on(what, kept_slot, outside)
            if self.legacies.last is not None and self.legacies.last[0].walk == walk:
                self.legacies.trained(walk)
        return effects

    def _send_on(self, what: Pass, at: Slots, outside: Outside) -> list[Effect]:
        if what.walk <= self.walks:
            return self._move_on(what, at, outside)
        return self.legacies.deliver(what, at, self.reign, outside)
