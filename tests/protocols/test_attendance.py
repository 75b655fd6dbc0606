"""Whom a round waits for."""

from __future__ import annotations

from walktalk.protocols.effects import Note, SetTimer
from walktalk.protocols.mechanisms.attendance import LATE, Attendance


def test_one_that_is_left_out_is_awaited_again_when_it_speaks() -> None:
    attendance = Attendance(patience=4.0)
    assert attendance.leave_out([2, 5], 7) == [Note("left_out", peer=peer, number=7) for peer in (2, 5)]
    attendance.speaks(5)
    assert attendance.out == {2}


def test_one_that_comes_back_is_sent_to_at_once_and_awaited_when_it_speaks() -> None:
    cut = {8}
    attendance = Attendance(4.0, cut)
    attendance.lost(3)
    assert cut == attendance.out == {3, 8}
    attendance.found(3)
    assert (cut, attendance.out) == ({8}, {3, 8})
    attendance.speaks(3)
    assert attendance.out == {8}


def test_patience_is_learned_from_how_long_the_others_took() -> None:
    attendance = Attendance(patience=4.0)
    first = attendance.wait(now=10.0)
    assert isinstance(first, SetTimer)
    assert first.name == LATE
    for now in range(100, 120):
        attendance.wait(float(now))
        attendance.complete(now + 30.0)
    longer = attendance.wait(200.0)
    assert isinstance(longer, SetTimer)
    assert longer.after > 4 * 25.0 > first.after


def test_nothing_is_learned_from_a_wait_in_vain() -> None:
    attendance = Attendance(patience=4.0)
    before = attendance.wait(now=10.0)
    attendance.leave_out([2], 7)
    attendance.complete(now=14.0)  # at once, since nobody else is missing
    assert attendance.wait(now=20.0) == before
    attendance.complete(now=20.5)
    assert attendance.wait(now=30.0) != before
