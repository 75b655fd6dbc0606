"""What a node of Multi-Walk knows of walks that are lost, and what it does about them: aggregator, guards, births.

`resilient` has the rest: how walks come, are trained and go. The aggregator mixes (`aggregation`) and, as a guard,
looks for walks that nobody has had for long (`sightings`) or that are away for longer than any (`walk_guard`); without
a centre every node judges by its own count (`walk_guard.Headcount`) or its own clock (`population`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from walktalk.protocols.arrivals import Arrivals
from walktalk.protocols.effects import INITIAL, MEMBER, Combine, Effect, Note, Record, SetTimer
from walktalk.protocols.machine import Machine, Outside, Surroundings
from walktalk.protocols.multi_walk.aggregation import Reign
from walktalk.protocols.multi_walk.hops import Hops
from walktalk.protocols.multi_walk.legacies import LAST, Legacies
from walktalk.protocols.multi_walk.membership import FIRST, Membership
from walktalk.protocols.multi_walk.population import LATE, Lateness
from walktalk.protocols.multi_walk.sightings import Sightings
from walktalk.protocols.multi_walk.visits import Stepping, Visiting, walk_slot
from walktalk.protocols.multi_walk.walk_copies import Copies
from walktalk.protocols.multi_walk.walk_guard import HARDLY_EVER, PRIOR, RARELY, Guard, Headcount, ReturnTimes
from walktalk.protocols.multi_walk.walk_pass import NO_REIGN, Pass
from walktalk.protocols.multi_walk.written import Written

GUARD = "guard"  # timer: look for lost walks


class WalkKeeper(Machine):
    """What a node knows, and how lost walks are noticed and begun again."""

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
        sightings = Sightings(walks if self.guards else 0, self._holds)
        self.members = Membership(around, heartbeat, sightings, Written(self._highest_ticket, walks))
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
        self.legacies = Legacies(walks, around, self.members, self.hops, self._take_back, visiting.noted)

    @abstractmethod
    def _visit(self, what: Pass, outside: Outside) -> list[Effect]:
        """A walk is in its slots: it is trained here, or runs on at once."""

    @abstractmethod
    def _take_back(self, what: Pass, slot: str, outside: Outside) -> list[Effect]:
        """This node aggregates, and a walk that was ended elsewhere has the ticket that it is to have."""

    def _holds(self, walk: int) -> bool:
        return self.copies.holding(walk, self.hops.what(walk)) is not None

    # -- the aggregator -------------------------------------------------------------------------------------------

    def _make_reign(self, name: tuple[int, int]) -> Reign:
        return Reign(self.walks, name, Guard(self.times))

    def _learn_pace(self, seconds: float) -> None:
        """What one visit takes here says, with the number of nodes, what return times to expect."""
        self.pace += (seconds - self.pace) * (1 / 8 if self.visited else 1.0)
        self.visited = True
        self.times.assumed, self.times.pace = PRIOR * self.around.nodes * self.pace, self.pace

    def _highest_ticket(self) -> int:
        return max(self.reign.tickets.values(), default=0) if self.reign is not None else 0

    def _new_reign(self, outside: Outside) -> list[Effect]:
        """Another node aggregates, or this one does: tickets of the past are remembered no more."""
        effects: list[Effect] = []
        now, before = outside.now, self.reign
        self.copies.new_reign(self.members.claim.reign)
        if before is not None:
            self.reign = None
            stepped_down = Note("stepped_down", number=before.name[0])
            effects += [*self.legacies.bequeath(before, outside), *self.legacies.hand_on(before, outside)]
            effects += [*before.end(), stepped_down]
        elif not self.members.leads:
            effects += self.legacies.send_own(None, outside)
        if self.members.leads:
            self.members.incident_at = now  # there was an election, so a node has failed: walks may be lost with it
            self.reign = self._make_reign(self.copies.reign)
            self.reign.await_walks(now)
            self.legacies.taken.clear()  # by an earlier reign of this node, if at all
            effects += [*self.legacies.send_own(self.reign, outside), *self._watch_walks(now)]
        return effects + self.legacies.send_remains(self.reign, outside)

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
