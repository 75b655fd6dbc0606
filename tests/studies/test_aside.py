"""What is written beside the arithmetic is written in order, waits for room, and says what went wrong."""

from __future__ import annotations

import sys
import threading

import pytest

from walktalk.studies.driving.aside import TURN, Aside, short_turns


@pytest.mark.parametrize("beside", [False, True])
def test_all_is_done_in_order(beside):
    done: list[int] = []
    with Aside(beside) as aside:
        for number in range(50):
            aside.do(lambda number=number: done.append(number))
    assert done == list(range(50))


def test_it_is_done_beside():
    """Whoever gives work goes on: this would wait for ever otherwise."""
    gate, done = threading.Event(), []
    with Aside(True) as aside:
        aside.do(gate.wait)
        aside.do(lambda: done.append(1))
        assert not done
        gate.set()
        aside.wait()
        assert done == [1]


def test_no_more_waits_than_there_is_room_for():
    gate, done = threading.Event(), []
    with Aside(True, most=10) as aside:
        aside.do(gate.wait, 6)
        opener = threading.Timer(0.01, gate.set)
        opener.start()
        aside.do(lambda: done.append("second"), 6)  # comes back only when the first is written
        assert gate.is_set()
    assert done == ["second"]


def test_what_went_wrong_is_raised():
    def full_disk() -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"), Aside(True) as aside:
        aside.do(full_disk)
    with Aside(True) as aside:
        aside.do(full_disk)
        with pytest.raises(OSError, match="no space"):
            aside.wait()


def test_turns_are_short_only_meanwhile():
    before = sys.getswitchinterval()
    with short_turns():
        assert sys.getswitchinterval() == pytest.approx(TURN)
    with short_turns(False):
        assert sys.getswitchinterval() == before
    assert sys.getswitchinterval() == before
