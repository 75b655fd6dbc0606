"""Multi-Walk where nodes and messages are lost: Algorithm 1 and Section 5 of the paper, put together.

A node is made of parts that each answer for one thing: `membership` (who lives, who aggregates), `hops` (no walk is
lost on the way), `walk_copies` (what an arriving walk is worth), `aggregation` (what is mixed), `walk_guard` (which
walks are dead). While nothing fails, the models are exactly those of `multi_walk`: the same trainings, the same steps,
the same sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from walktalk.chains import metropolis_step
from walktalk.protocols.arrivals import Arrivals
from walktalk.protocols.effects import (
    INITIAL,
    MEMBER,
    Combine,
    Effect,
    Forget,
    Note,
    Record,
    Send,
    SetTimer,
    Train,
    apply_update,
)
from walktalk.protocols.events import Event, PeerFound, PeerLost, Received, Rejoined, Started, TimerFired, Trained
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.message import Arrival, Message
from walktalk.protocols.multi_walk.aggregation import Reign, walk_slot
from walktalk.protocols.multi_walk.election import LEAP
from walktalk.protocols.multi_walk.hops import Hops, kept_slot
from walktalk.protocols.multi_walk.membership import BEAT, FIRST, TIMERS, Membership
from walktalk.protocols.multi_walk.sightings import Sightings
from walktalk.protocols.multi_walk.walk_copies import Copies
from walktalk.protocols.multi_walk.walk_guard import HARDLY_EVER, PRIOR, RARELY, Guard, Headcount, ReturnTimes
from walktalk.protocols.multi_walk.walk_pass import ACK, NO_REIGN, WALK, Pass, pass_of

LAST = "last"  # the model of the last walk that was trained here: what is left where every walk is lost
GUARD = "guard"  # timer: look for lost walks
REMEMBERED = 20.0  # heartbeats that a node remembers which copies of walks came: longer than any message is repeated
MESSAGES = {WALK: Arrival("in/{walk}"), ACK: Arrival(), BEAT: Arrival()}


class ResilientNode(Machine):
    """Any node; the one that is elected also mixes."""

    __slots__ = (
        "aggregator",
        "around",
        "begun",
        "copies",
        "count",
        "guards",
        "hops",
        "members",
        "pace",
        "reign",
        "times",
        "trained",
        "visited",
        "walks",
    )

    def __init__(self, around: Surroundings, walks: int, aggregator: int, heartbeat: float, guard: str) -> None:
        self.around, self.walks, self.aggregator = around, walks, aggregator
        self.guards = guard == "aggregator"
        self.members = Membership(around, heartbeat, Sightings(walks if self.guards else 0, self._holds))
        self.hops = Hops(Arrivals(heartbeat, 0.0))
        self.pace, self.visited = heartbeat, False  # what a visit takes, and whether there was one in this life
        self.trained = False  # whether there is a model in `LAST`, of this life or an earlier one
        self.begun: dict[int, float] = {}  # when the visits of now began
        self.times = ReturnTimes(PRIOR * around.nodes * heartbeat)
        self.count = Headcount(walks, self.times) if guard == "decentralized" else None
        self.reign: Reign | None = None
        self.copies = Copies()

    def handle(self, event: Event, outside: Outside) -> list[Effect]:
        incidents = self.members.incidents
        self.members.resources = outside.resources or self.members.resources
        effects = self._react(event, outside)
        if self.members.claim.reign != self.copies.reign:
            effects += self._new_reign(outside.now)
        elif self.members.incidents != incidents:
            effects += self._watch_walks(outside.now)
        return effects

    def refused(self, sender: int, message: Message, outside: Outside) -> list[Effect]:
        """Its sender need not keep it: a walk that is no model any more is lost, and started again."""
        return [Send(sender, pass_of(message).message(ACK))]

    def has_work(self) -> bool:
        """With the aggregator's guard there always is: it starts lost walks again."""
        return self.guards or bool(self.copies.here or self.copies.next or self.hops.leaving)

    def keepsake(self) -> bytes:
        """Whether there is a model in `LAST`."""
        return b"\1" if self.trained else b""

    def _react(self, event: Event, outside: Outside) -> list[Effect]:
        match event:
            case Received():
                return self._received(event, outside)
            case Trained():
                return self._trained(event.walk, outside)
            case TimerFired(name):
                return self._timer(name, outside)
            case Started(late=False):
                return self._start(outside.now)
            case Started():  # its walk is long on its way, and somebody aggregates
                return self.members.rejoin(outside.now)
            case Rejoined(memory):
                self.trained = bool(memory)
                forgotten = [Forget(name(walk)) for walk in range(1, self.walks + 1) for name in OWN_SLOTS]
                return [*forgotten, *self.members.rejoin(outside.now)]
            case PeerLost(peer):
                return [*self.members.lost(peer, outside.now), *self._reroute(self.hops.to(peer), outside)]
            case PeerFound(peer):
                return self.members.found(peer, outside.now)

    def _start(self, now: float) -> list[Effect]:
        """Lines 1 to 3: walk r (counted from 1) starts at node r − 1."""
        around = self.around
        effects = self.members.start(self.aggregator, now)
        first = self.members.claim.reign
        self.copies.new_reign(first)
        if self.members.leads:
            self.reign = self._make_reign(first)
            effects += [*self.reign.begin_afresh(now), *self._watch_walks(now)]
        if around.node < self.walks:
            walk = around.node + 1
            slot = walk_slot(walk)
            self.copies.here[walk] = Pass(walk, first, 0)
            effects += (Combine(slot, {INITIAL: 1.0}), Record(MEMBER, walk, slot), self._train(walk, now))
        return effects

    def _train(self, walk: int, now: float) -> Effect:
        self.begun[walk] = now
        return Train(walk_slot(walk), walk)

    def _timer(self, name: str, outside: Outside) -> list[Effect]:
        if name in TIMERS:
            effects = self.members.timer(name, outside.now)
            if name != BEAT:
                return effects
            self.copies.forget_old(outside.now, REMEMBERED * self.members.interval)
            return [*effects, *self._leave_out_the_silent(outside), *self._look_for_lost_walks(outside)]
        if name == GUARD:
            return self._look_for_lost_walks(outside)
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
        what = pass_of(message)
        effects = self.members.sign_of_life(event.sender, now)
        if message.kind == ACK:
            return effects + self.hops.acknowledged(what, event.sender, now)
        self._check(what)
        effects.append(Send(event.sender, what.message(ACK)))
        return effects + self._arrives(what, event.slot, now)

    def _check(self, what: Pass) -> None:
        """Refuse what cannot be: `ValueError`."""
        if not 1 <= what.walk <= self.walks:
            raise ValueError(f"there is no walk {what.walk}")
        if what.reign[1] >= self.around.nodes or what.reign[0] > self.members.claim.term + LEAP:
            raise ValueError(f"node {what.reign[1]} does not aggregate in term {what.reign[0]}")

    def _arrives(self, what: Pass, arrived: str, now: float) -> list[Effect]:
        walk, copies = what.walk, self.copies
        if copies.repeats(what):
            return [Forget(arrived)]
        if copies.lags(what, self.hops.what(walk)) or (self.reign is not None and self.reign.never_wrote(what)):
            return [Forget(arrived), Note("retired", walk=walk, number=what.ticket)]
        copies.accept(what, now)
        self.members.sightings.saw(walk, self.members.beat)
        effects = self.hops.give_up(walk) if walk in self.hops.leaving else []
        if walk in copies.here:
            copies.next[walk] = what
            return [*effects, Combine(next_slot(walk), {arrived: 1.0}), Forget(arrived)]
        copies.here[walk] = what
        slot = walk_slot(walk)
        begin = (Combine(slot, {arrived: 1.0}), Forget(arrived), Record(MEMBER, walk, slot), self._train(walk, now))
        return [*effects, *begin]

    def _holds(self, walk: int) -> bool:
        return self.copies.holding(walk, self.hops.what(walk)) is not None

    # -- walks are trained and go ---------------------------------------------------------------------------------

    def _trained(self, walk: int, outside: Outside) -> list[Effect]:
        slot, now = walk_slot(walk), outside.now
        what = self.copies.here.pop(walk, None)
        newer = self.copies.next.pop(walk, None)
        if newer is not None:  # the copy that was trained is out of date
            self.copies.here[walk] = newer
            waiting = next_slot(walk)
            begin = (Combine(slot, {waiting: 1.0}), Forget(waiting), Record(MEMBER, walk, slot), self._train(walk, now))
            return [Note("retired", walk=walk, number=what.ticket if what is not None else 0), *begin]
        if what is None:
            return [Forget(slot)]
        self._learn_pace(now - self.begun.pop(walk, now))
        effects: list[Effect] = [apply_update(slot)]  # line 6
        if self.reign is not None:
            if not self.reign.admits(what):
                return [Forget(slot), Note("retired", walk=walk, number=what.ticket)]
            effects += self.reign.mix(what, now)
            what = self.reign.stamped(walk)
            self.copies.remember(what, now)
        self.times.visit(walk, (what.reign, what.generation), now)
        effects += (Record(MEMBER, walk, slot), Combine(LAST, {slot: 1.0}))
        self.trained = True
        effects += self._fork(walk, outside) if self.count is not None else ()
        return effects + self._move_on(what, slot, outside)

    def _move_on(self, what: Pass, slot: str, outside: Outside) -> list[Effect]:
        """Lines 11 and 12, on the graph that is left."""
        me, walk, (peers, degrees) = self.around.node, what.walk, self.members.row()
        to = metropolis_step(me, len(peers), peers, degrees, outside.random)
        if to != me:
            return self.hops.send(what.moved(), slot, to, outside.now)
        self.copies.here[walk] = what
        stay: list[Effect] = [] if slot == walk_slot(walk) else [Combine(walk_slot(walk), {slot: 1.0}), Forget(slot)]
        return [*stay, self._train(walk, outside.now)]

    def _reroute(self, walks: Iterable[int], outside: Outside) -> list[Effect]:
        """These were on their way to a node that is dead."""
        effects: list[Effect] = []
        for walk in walks:
            hop = self.hops.leaving.pop(walk)
            effects.append(Note("rerouted", walk=walk, peer=hop.to))
            effects += self._move_on(hop.what, kept_slot(walk), outside)
        return effects

    # -- the aggregator -------------------------------------------------------------------------------------------

    def _make_reign(self, name: tuple[int, int]) -> Reign:
        return Reign(self.walks, name, Guard(self.times))

    def _learn_pace(self, seconds: float) -> None:
        """What one visit takes here says, with the number of nodes, what return times to expect."""
        self.pace += (seconds - self.pace) * (1 / 8 if self.visited else 1.0)
        self.visited = True
        self.times.assumed = PRIOR * self.around.nodes * self.pace

    def _new_reign(self, now: float) -> list[Effect]:
        """Another node aggregates, or this one does: tickets of the past are remembered no more."""
        effects: list[Effect] = []
        self.copies.new_reign(self.members.claim.reign)
        if self.reign is not None:
            effects += [*self.reign.end(), Note("stepped_down", number=self.reign.name[0])]
            self.reign = None
        if self.members.leads:
            self.members.incident_at = now  # there was an election, so a node has failed: walks may be lost with it
            self.reign = self._make_reign(self.copies.reign)
            self.reign.await_walks(now)
            effects += self._watch_walks(now)
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
                effects += self._restart(reign, walk, now)
        return [*effects, *self._watch_walks(now)]

    def _restart(self, reign: Reign, walk: int, now: float) -> list[Effect]:
        effects = reign.restart(walk, LAST if self.trained else INITIAL, now)
        self.copies.here[walk] = what = reign.stamped(walk)
        self.copies.remember(what, now)
        return [*effects, Record(MEMBER, walk, walk_slot(walk)), self._train(walk, now)]

    # -- the guard without a centre -------------------------------------------------------------------------------

    def _fork(self, walk: int, outside: Outside) -> list[Effect]:
        """Too few walks seem to be alive: the visiting one begets the one that has been away longest."""
        count, now = self.count, outside.now
        assert count is not None
        lost = count.missing(walk, now)
        if lost is None or self._holds(lost) or outside.random.random() * self.walks >= 1.0:
            return []
        self.times.left[lost] = (now, NO_REIGN)  # a replacement goes out: it counts as seen now
        slot = walk_slot(lost)
        self.copies.here[lost] = Pass(lost, NO_REIGN, 0)
        made = (Combine(slot, {walk_slot(walk): 1.0}), Record(MEMBER, lost, slot), self._train(lost, now))
        return [Note("forked", walk=lost), *made]


def next_slot(walk: int) -> str:
    """Where a walk waits for the training of an older copy to end."""
    return f"next/{walk}"


OWN_SLOTS = (walk_slot, kept_slot, next_slot)
