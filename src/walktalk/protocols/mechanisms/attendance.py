"""Whom a round waits for: not for those that are lost, nor for those that took longer than others ever did.

Who was left out for being late is not waited for again before it speaks; nor is one that comes back, which has taken no
part meanwhile. Where several rounds are open they are waited for one after the other. How long the others may take is
learned (`timeouts`) from the rounds of which nobody was left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from walktalk.protocols.effects import Effect, Note, SetTimer
from walktalk.protocols.events import NetworkView

# -- Adaptive time-outs: how long a silence may last, learned from the intervals that were observed -------------------
# Mean and mean deviation are kept as running averages (Jacobson 1988, as TCP does for its own time-out). A silence is
# suspicious when it is longer than the mean by seven deviations, which for a normal distribution is the φ = 8 of
# accrual failure detectors (Hayashibara et al. 2004): one false alarm in 10⁸ intervals. It is never less than four
# intervals, because a perfectly regular past says nothing about the future.

DEVIATIONS = 7.0  # of the mean absolute deviation, 0.8 σ: φ = 8
INTERVALS = 4.0  # the least patience, in intervals
MOST_DOUBLINGS = 6  # of the patience, for one who asks again and again
WEIGHT = 1 / 8  # of the newest observation in the averages, as in TCP


@dataclass
class Arrivals:
    """When something came, and how long one may wait for it to come again."""

    expected: float  # the interval that the sender is known to keep when all is well
    last: float  # when it came last, or when the waiting begins
    mean: float = field(init=False)
    deviation: float = field(init=False)

    def __post_init__(self) -> None:
        self.mean, self.deviation = self.expected, self.expected / 2

    def arrived(self, now: float) -> None:
        """It came again; before the waiting began there is nothing to learn from it."""
        if now > self.last:
            self.observe(now - self.last)
        self.last = now

    def observe(self, interval: float) -> None:
        """An interval of this length was seen."""
        self.deviation += WEIGHT * (abs(interval - self.mean) - self.deviation)
        self.mean += WEIGHT * (interval - self.mean)

    @property
    def patience(self) -> float:
        """The longest silence that says nothing."""
        return max(self.mean + DEVIATIONS * self.deviation, INTERVALS * max(self.mean, self.expected))

    def deadline(self) -> float:
        """When the present silence becomes suspicious."""
        return self.last + self.patience

    def overdue(self, now: float) -> bool:
        """Whether the present silence is too long."""
        return now >= self.deadline()


# -- Whom a round waits for: not for those that are lost, nor for those that took longer than others ever did ---------

LEAP = 1_000  # by how much one voice may move a number that grows, a round or a term: nobody misses so many in a life
LAST = 2**30  # no round is later: numbers of messages have 31 bits, and nobody comes so far
LATE = "late"  # timer: whoever has not come by then is left out


class Attendance:
    """Who takes part, as one node sees it."""

    __slots__ = ("absent", "began", "cut", "far", "waits")

    def __init__(self, patience: float, cut: set[int] | None = None) -> None:
        """
        - `patience`: seconds to wait for those that are late, at first.
        - `cut`: where those that are lost are written down; a set of its own if left out.
        """
        self.cut = set() if cut is None else cut  # lost, as the runtime says
        self.absent: set[int] = set()  # too late, and silent since
        self.far: dict[int, int] = {}  # neighbour -> a round that it says it is in, too far ahead to be believed alone
        self.waits = Arrivals(patience / 4, 0.0)  # how long the last of them takes
        self.began: float | None = None  # when the present wait began

    @property
    def out(self) -> set[int]:
        """Those that nobody waits for."""
        return self.cut | self.absent

    def lost(self, peer: int) -> None:
        """The runtime says that it is."""
        self.cut.add(peer)

    def found(self, peer: int) -> None:
        """It is there again: awaited when it has spoken."""
        self.cut.discard(peer)
        self.absent.add(peer)

    def speaks(self, peer: int) -> None:
        """A node takes part, and is awaited."""
        self.absent.discard(peer)

    def believes(self, peer: int, number: int, here: int, neighbours: Collection[int]) -> bool:
        """Whether to go where a neighbour says that it is, from round `here`.

        One alone moves a node by `LEAP` rounds at most; further it goes when two say so, or all whom it can hear.
        """
        self.far = {one: claim for one, claim in self.far.items() if claim > here + LEAP}
        if number <= here + LEAP:
            return True
        near = number <= min(self.far.values(), default=number) + LEAP
        self.far[peer] = number
        return near and (len(self.far) > 1 or not {*neighbours} - self.cut - self.far.keys())

    @property
    def is_waiting(self) -> bool:
        """Whether a wait has begun, and has been neither completed nor in vain."""
        return self.began is not None

    def wait(self, now: float) -> Effect:
        """This node has done its own part, and waits for the others'."""
        self.began = now
        return SetTimer(LATE, self.waits.patience)

    def complete(self, now: float) -> None:
        """Nobody is awaited any more."""
        if self.began is not None:
            self.waits.observe(now - self.began)
            self.began = None

    def leave_out(self, peers: Collection[int], round_: int) -> list[Effect]:
        """Leave these out of this round; nothing is learned from a wait that was in vain."""
        self.absent.update(peers)
        self.began = None
        return [Note("left_out", peer=peer, number=round_) for peer in peers]


# -- Those whose results a server waits for: one way of waiting for all rounds with a server, however many are open ---


class Cohort:
    """Whom a node waits for in rounds that are open, and what has come of them.

    Args:
        patience: seconds to wait for those that are late, at first; None: for ever, in a world without failures.
    """

    __slots__ = ("asked", "attendance", "came", "none", "survives")

    def __init__(self, patience: float | None) -> None:
        self.survives = patience is not None
        self.attendance = Attendance(patience or 1.0)
        self.asked: dict[int, set[int]] = {}  # round -> those whose results may come
        self.none: dict[int, set[int]] = {}  # round -> those that have no result
        self.came: dict[int, dict[int, list[str]]] = {}  # round -> node -> slots with what came of it

    def ask(self, round_: int, peers: Iterable[int]) -> list[int]:
        """Open a round with those of some nodes that are not lost; who that is."""
        there = [peer for peer in peers if peer not in self.attendance.cut]
        self.asked[round_] = set(there)
        return there

    def come(self, round_: int, peer: int, slot: str) -> None:
        """Something of a round has come."""
        slots = self.came.setdefault(round_, {}).setdefault(peer, [])
        if slot not in slots:
            slots.append(slot)

    def has_none(self, peer: int, round_: int) -> None:
        """There will be no result of a node in a round, which is open or will be."""
        self.none.setdefault(round_, set()).add(peer)

    def found(self, peer: int) -> None:
        """A lost node is there again: it has nothing of the rounds that are open."""
        self.attendance.cut.discard(peer)
        for asked in self.asked.values():
            asked.discard(peer)

    def change(self, before: Collection[int], now: Collection[int]) -> None:
        """Other nodes are around than before: new ones count as lost until they are found, nobody waits for the gone.

        What has come of those counts all the same.
        """
        attendance = self.attendance
        attendance.cut = {peer for peer in now if peer in attendance.cut or peer not in before}
        attendance.absent &= set(now)
        for asked in self.asked.values():
            asked &= set(now)

    def missing(self, round_: int, wanted: int) -> list[int]:
        """Those that a round still waits for: of whom fewer slots than wanted are here."""
        came, out = self.came.get(round_, {}), self.attendance.out | self.none.get(round_, set())
        return sorted(peer for peer in self.asked[round_] - out if len(came.get(peer, ())) < wanted)

    def whole(self, round_: int, wanted: int) -> list[int]:
        """Those of whom everything of a round is here."""
        return sorted(peer for peer, slots in self.came.get(round_, {}).items() if len(slots) == wanted)

    def wait(self, now: float) -> list[Effect]:
        """This node has done its own part of a round, and waits for the others'."""
        return [self.attendance.wait(now)] if self.survives and not self.attendance.is_waiting else []

    def too_late(self, round_: int, wanted: int) -> list[Effect]:
        """Leave out those that a round waits for no longer."""
        return self.attendance.leave_out(self.missing(round_, wanted), round_)

    def close(self, round_: int, now: float) -> list[str]:
        """A round is over; the slots with all that has come of it, which are not needed any more."""
        self.attendance.complete(now)
        self.asked.pop(round_)
        self.none.pop(round_, None)
        return [slot for slots in self.came.pop(round_, {}).values() for slot in slots]


# -- Which neighbours live, where they tell each other by heartbeats ---------------------------------------------------


class Neighbourhood:
    """Which of a node's neighbours live: by what is heard of them, and by what the runtime says."""

    __slots__ = ("around", "cut", "degrees", "grace", "heard", "living", "pause")

    def __init__(self, around: NetworkView, pause: float, grace: float) -> None:
        """
        - `around`: what the node knows of its place.
        - `pause`: seconds after which a neighbour speaks by itself.
        - `grace`: seconds that one may take until it speaks first.
        """
        self.around, self.pause, self.grace = around, pause, grace
        self.living: set[int] = set(around.neighbours)
        self.cut: set[int] = set()  # those that the runtime says are lost: nothing is sent to them
        self.degrees = dict(zip(around.neighbours, around.degrees, strict=True))
        self.heard: dict[int, Arrivals] = {}  # by neighbour

    def begin(self, now: float) -> None:
        """Await them from now on."""
        self.heard = {peer: Arrivals(self.pause, now + self.grace) for peer in self.around.neighbours}

    def row(self) -> tuple[list[int], list[int]]:
        """Living neighbours that stay, in the graph's order, and how many living neighbours each of them has."""
        leaving = self.around.leaving
        peers = [peer for peer in self.around.neighbours if peer in self.living and peer not in leaving]
        return peers, [self.degrees[peer] for peer in peers]

    def reachable(self) -> list[int]:
        """Those that can be sent to, in the graph's order."""
        return [peer for peer in self.around.neighbours if peer not in self.cut]

    def check(self, sender: int) -> None:
        """Raise `ValueError` for one that is no neighbour."""
        if sender not in self.degrees:
            raise ValueError(f"{sender} is no neighbour")

    def hear(self, sender: int, degree: int, now: float) -> list[Effect]:
        """A neighbour's heartbeat has come, which says how many living neighbours it has."""
        self.heard[sender].arrived(now)
        self.degrees[sender] = max(1, degree)
        return self.sign_of_life(sender, now)

    def sign_of_life(self, sender: int, now: float) -> list[Effect]:
        """A message from a neighbour has come, so it lives."""
        arrivals = self.heard[sender]
        arrivals.last = max(arrivals.last, now)
        if sender in self.living:
            return []
        self.living.add(sender)
        self.cut.discard(sender)
        return [Note("found_alive", peer=sender)]

    def lost(self, peer: int) -> None:
        """The runtime says that a neighbour is gone."""
        self.living.discard(peer)
        self.cut.add(peer)

    def found(self, peer: int, now: float) -> None:
        """The runtime says that a neighbour is back."""
        self.living.add(peer)
        self.cut.discard(peer)
        self.heard[peer] = Arrivals(self.pause, now + self.grace)

    def fall_silent(self, now: float) -> list[int]:
        """Neighbours that have been silent for too long: they count as dead until they speak again."""
        gone = [peer for peer in self.around.neighbours if peer in self.living and self.heard[peer].overdue(now)]
        self.living.difference_update(gone)
        return gone

    def is_silent_since(self, moment: float) -> bool:
        """Whether none of them has said anything since then."""
        return bool(self.heard) and all(arrivals.last < moment for arrivals in self.heard.values())

    def change(self, around: NetworkView, now: float) -> list[int]:
        """Take in who has joined and left; returns those that are no neighbours any more."""
        before, self.around = self.around, around
        gone = [peer for peer in before.neighbours if peer not in around.neighbours]
        for peer in gone:
            self.living.discard(peer)
            self.cut.discard(peer)
            self.heard.pop(peer, None)
            self.degrees.pop(peer, None)
        for peer, degree in zip(around.neighbours, around.degrees, strict=True):
            if peer not in before.neighbours:
                self.cut.add(peer)  # until it is found
                self.degrees[peer] = max(1, degree)
                self.heard[peer] = Arrivals(self.pause, now + self.grace)
        return gone
