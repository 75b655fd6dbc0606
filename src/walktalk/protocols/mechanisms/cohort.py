"""Those whose results a server waits for: one way of waiting for all rounds with a server, however many are open."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from walktalk.protocols.effects import Effect
from walktalk.protocols.mechanisms.attendance import Attendance


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
