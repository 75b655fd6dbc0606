"""Multi-Walk where nodes and messages are lost: Algorithm 1 and Section 5 of the paper, put together.

A node is made of parts that each answer for one thing: `membership` (who lives, who aggregates), `hops` (no walk is
lost on the way), `walk_copies` (what an arriving walk is worth), `aggregation` (what is mixed), `walk_guard` (which
walks are dead). While nothing fails, the models are exactly those of `multi_walk`: the same trainings, the same steps,
the same sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from walktalk.protocols.arrivals import Arrivals
from walktalk.protocols.effects import AGGREGATE, INITIAL, MEMBER, Combine, Effect, Note, Record, Send, SetTimer
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
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.multi_walk.aggregation import Reign, copy_slot
from walktalk.protocols.multi_walk.election import LEAP, NOBODY
from walktalk.protocols.multi_walk.farewell import Farewell, reign_facts, remembered, resumed
from walktalk.protocols.multi_walk.hops import Hops
from walktalk.protocols.multi_walk.legacies import Legacies
from walktalk.protocols.multi_walk.membership import BEAT, FIRST, TIMERS, Membership
from walktalk.protocols.multi_walk.population import LATE, Lateness
from walktalk.protocols.multi_walk.sightings import Sightings
from walktalk.protocols.multi_walk.visits import (
    NOTHING,
    Carried,
    Slots,
    Stepping,
    Visiting,
    forgotten,
    in_slot,
    kept_slot,
    moved,
    next_slot,
    walk_slot,
)
from walktalk.protocols.multi_walk.walk_copies import Copies
from walktalk.protocols.multi_walk.walk_guard import HARDLY_EVER, PRIOR, RARELY, Guard, Headcount, ReturnTimes
from walktalk.protocols.multi_walk.walk_pass import ACK, NO_REIGN, WALK, Pass, answer_to, pass_of

LAST = "last"  # the model of the last walk that was trained here: what is left where every walk is lost
GUARD = "guard"  # timer: look for lost walks
REMEMBERED = 20.0  # heartbeats that a node remembers which copies of walks came: longer than any message is repeated
MESSAGES = {WALK: Arrival("in/{walk}"), ACK: Arrival(), BEAT: Arrival()}


def messages_with(luggage: tuple[str, ...]) -> dict[str, Arrival]:
    """Those of walks that carry more than their model."""
    return {**MESSAGES, **{kind: Arrival(f"in/{kind}/{{round}}") for kind in luggage}}


class ResilientNode(Machine):
    """Any node; the one that is elected also mixes."""

    __slots__ = (
        "aggregator",
        "around",
        "begun",
        "came",
        "copies",
        "count",
        "creates",
        "guards",
        "hops",
        "lateness",
        "legacies",
        "members",
        "pace",
        "parts",
        "reign",
        "stepping",
        "times",
        "trained",
        "visited",
        "visiting",
        "walks",
    )

    def __init__(
        self,
        around: Surroundings,
        walks: int,
        aggregator: int,
        heartbeat: float,
        guard: str,
        visiting: Visiting,
        stepping: Stepping,
    ) -> None:
        self.around, self.walks, self.aggregator = around, walks, aggregator
        self.visiting, self.stepping = visiting, stepping
        self.came: dict[int, tuple[Pass, int]] = {}  # walks that wait for their luggage, and who sent them
        self.parts: dict[int, dict[str, bytes]] = {}  # walk -> kinds of luggage that came, with their labels
        self.guards = guard == "aggregator"
        self.members = Membership(around, heartbeat, Sightings(walks if self.guards else 0, self._holds))
        self.hops = Hops(Arrivals(heartbeat, 0.0), visiting.luggage)
        self.pace, self.visited = heartbeat, False  # what a visit takes, and whether there was one in this life
        self.trained = False  # whether there is a model in `LAST`, of this life or an earlier one
        self.begun: dict[int, float] = {}  # when the visits of now began
        self.times = ReturnTimes(PRIOR * around.nodes * heartbeat)
        self.count = Headcount(walks, self.times) if guard == "decentralized" else None
        self.creates = guard == "create_if_late"
        self.lateness = Lateness(around.nodes, walks) if guard in ("average_crossing", "create_if_late") else None
        self.reign: Reign | None = None
        self.copies = Copies()
        self.legacies = Legacies(walks, around, self.members, self.hops)

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
                return [*self.members.lost(peer, outside.now), *self._reroute(self.hops.to(peer), outside)]
            case PeerFound(peer):
                return self.members.found(peer, outside.now)
            case NetworkChanged(around):
                return self._change(around, outside)
            case Leaving():
                return self.members.leave(outside.now)

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
            self.copies.forget_old(outside.now, REMEMBERED * self.members.interval)
            effects += self.legacies.forget_own(outside.now)
            return [*effects, *self._leave_out_the_silent(outside), *self._look_for_lost_walks(outside)]
        if name == GUARD:
            return self._look_for_lost_walks(outside)
        if name == LATE:
            return self._create(outside)
        walk = int(name.rpartition("/")[2])
        hop = self.hops.leaving.get(walk)
        if hop is None:
            return []
        return self.hops.again(walk) if hop.to in self.members.living else self._reroute([walk], outside)

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
            return effects if self.members.beat == beat else [*effects, *self._leave_out_the_silent(outside)]
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
        self.came[what.walk] = (what, event.sender)
        return effects + self._if_whole(what.walk, outside)

    def _check(self, what: Pass) -> None:
        """Refuse what cannot be: `ValueError`."""
        if not self.legacies.is_number(what.walk, what.reign[1]):
            self._known(what.walk)
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
        if copies.lags(what, self.hops.what(walk)) or (self.reign is not None and self.reign.never_wrote(what)):
            return self.legacies.of_walk(what, in_slot, self.reign, outside)
        copies.accept(what, outside.now)
        self.members.sightings.saw(walk, self.members.beat)
        effects = self.hops.give_up(walk) if walk in self.hops.leaving else []
        if walk in copies.here:
            copies.next[walk] = what
            return [*effects, *moved(walk, luggage, in_slot, next_slot)]
        move = moved(walk, luggage, in_slot, walk_slot)
        return [*effects, *move, Record(MEMBER, walk, walk_slot(walk)), *self._visit(what, outside)]

    def _holds(self, walk: int) -> bool:
        return self.copies.holding(walk, self.hops.what(walk)) is not None

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
            late = reign.readmits(what) and not luggage
            learned = self.visiting.learn(event, what.carried.more)[0] if late else []
            counts = [*learned, *reign.readmit(what, slot)] if late else []
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
        effects += self._multiply(walk, outside)
        return effects + self._move_on(what, walk_slot, outside)

    def _ends(self, what: Pass | None, event: Trained, outside: Outside) -> list[Effect]:
        """A later copy of this walk has come while it was trained."""
        if what is None or self.hops.luggage:
            number = what.ticket if what is not None else 0
            retired = Note("retired", walk=event.walk, number=number)
            return [*forgotten(event.walk, self.hops.luggage, walk_slot), retired]
        learned, _ = self.visiting.learn(event, what.carried.more)
        return [*learned, *self.legacies.of_walk(what.moved(), walk_slot, self.reign, outside)]

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
            hop = self.hops.leaving.pop(walk)
            effects.append(Note("rerouted", walk=walk, peer=hop.to))
            # It may have been there already, and go on from there: what nodes noted of it is that copy's from now on.
            what = hop.what._replace(carried=NOTHING) if walk <= self.walks else hop.what
            effects += self._send_on(what, kept_slot, outside)
        return effects

    def _send_on(self, what: Pass, at: Slots, outside: Outside) -> list[Effect]:
        if what.walk <= self.walks:
            return self._move_on(what, at, outside)
        return self.legacies.deliver(what, at, self.reign, outside)

    # -- the aggregator -------------------------------------------------------------------------------------------

    def _make_reign(self, name: tuple[int, int]) -> Reign:
        return Reign(self.walks, name, Guard(self.times))

    def _learn_pace(self, seconds: float) -> None:
        """What one visit takes here says, with the number of nodes, what return times to expect."""
        self.pace += (seconds - self.pace) * (1 / 8 if self.visited else 1.0)
        self.visited = True
        self.times.assumed = PRIOR * self.around.nodes * self.pace

    def _new_reign(self, outside: Outside) -> list[Effect]:
        """Another node aggregates, or this one does: tickets of the past are remembered no more."""
        effects: list[Effect] = []
        now, before = outside.now, self.reign
        self.copies.new_reign(self.members.claim.reign)
        if before is not None:
            self.reign = None
            stepped_down = Note("stepped_down", number=before.name[0])
            effects += [*self.legacies.bequeath(before, outside), *before.end(), stepped_down]
        elif not self.members.leads:
            effects += self.legacies.send_own(None, outside)
        if self.members.leads:
            self.members.incident_at = now  # there was an election, so a node has failed: walks may be lost with it
            self.reign = self._make_reign(self.copies.reign)
            self.reign.await_walks(now)
            effects += [*self.legacies.send_own(self.reign, outside), *self._watch_walks(now)]
        return effects

    def _watch_walks(self, now: float) -> list[Effect]:
        if not self.guards or self.reign is None:
            return []
        return [SetTimer(GUARD, self.reign.guard.next_check(now, self._chance(now)))]

    def _chance(self, now: float) -> Callable[[int, float], float]:
        """How often a living walk may be taken for lost because it is away for so long."""
        members, seen = self.members, self.members.sightings

        def of(walk: int, left: float) -> float:
            alive = now - seen.age(walk, members.beat) * members.interval if seen.is_known(walk) else left
            if max(left, alive) <= members.incident_at:
                return RARELY
            # Somebody has it, or will soon be known to have had it; before news of it can have come, few return times
            # are known as well, and those of walks that stayed where they were would speak for all.
            return 0.0 if seen.is_known(walk) or now < left + FIRST * members.interval else HARDLY_EVER

        return of

    def _unseen(self, reign: Reign) -> list[int]:
        """Walks that nobody has had for longer than news of them take."""
        members, later = self.members, reign.name[0] > 1
        return [walk for walk in reign.everyone() if members.sightings.unseen(walk, members.beat, awaited=later)]

    def _look_for_lost_walks(self, outside: Outside) -> list[Effect]:
        reign, now = self.reign, outside.now
        if reign is None or not self.guards:
            return []
        effects: list[Effect] = []
        for walk in sorted({*reign.guard.overdue(now, self._chance(now)), *self._unseen(reign)}):
            if self._holds(walk):
                reign.guard.leaves(walk, now)  # it is here: a queue, not a loss
            else:
                effects += self._restart(reign, walk, outside)
        return [*effects, *self._watch_walks(now)]

    def _restart(self, reign: Reign, walk: int, outside: Outside) -> list[Effect]:
        effects = reign.restart(walk, LAST if self.trained else INITIAL, outside.now)
        what = reign.stamped(walk)
        self.copies.remember(what, outside.now)
        return [*effects, Record(MEMBER, walk, walk_slot(walk)), *self._visit(what, outside)]

    # -- the guard without a centre -------------------------------------------------------------------------------

    def _multiply(self, walk: int, outside: Outside) -> list[Effect]:
        """A walk has visited: where too few seem to be alive, it begets another."""
        now, random = outside.now, outside.random
        if self.count is not None:
            lost = self.count.missing(walk, now)
            return self._beget(lost, walk_slot(walk), outside) if lost and random.random() * self.walks < 1.0 else []
        if self.lateness is None:
            return []
        crossed = self.lateness.crossed(now, self.pace)
        if self.creates:
            return self._wait_for_walks(now)
        lost = self._most_missed(walk, outside) if crossed and self.lateness.bears(random) else 0
        return self._beget(lost, walk_slot(walk), outside) if lost else []

    def _wait_for_walks(self, now: float) -> list[Effect]:
        """From now on, until one comes or it is too late."""
        if self.lateness is None or not self.creates:
            return []
        self.lateness.last = now
        return [SetTimer(LATE, self.lateness.limit(self.pace))]

    def _create(self, outside: Outside) -> list[Effect]:
        """No walk has been here for too long."""
        again = self._wait_for_walks(outside.now)
        if self.lateness is None or self.copies.here or not self.lateness.bears(outside.random):
            return again
        return [*again, *self._beget(self._most_missed(0, outside), LAST if self.trained else INITIAL, outside)]

    def _most_missed(self, visiting: int, outside: Outside) -> int:
        """The walk that was here longest ago, or one of those that never were; 0 if there is no other."""
        left, dice = self.times.left, outside.random
        others = [walk for walk in range(1, self.walks + 1) if walk != visiting and not self._holds(walk)]
        return min(others, key=lambda walk: (left[walk][0] if walk in left else -1.0, dice.random()), default=0)

    def _beget(self, lost: int, model: str, outside: Outside) -> list[Effect]:
        """A new walk, with the number of one that seems to be lost."""
        if not lost or self._holds(lost):
            return []
        self.times.left[lost] = (outside.now, NO_REIGN)  # a replacement goes out: it counts as seen now
        slot = walk_slot(lost)
        made = (Combine(slot, {model: 1.0}), Record(MEMBER, lost, slot))
        what = Pass(lost, NO_REIGN, 0, generation=outside.random.getrandbits(31))  # told from others of its number
        return [Note("forked", walk=lost), *made, *self._visit(what, outside)]
