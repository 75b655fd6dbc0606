"""What is written beside the arithmetic is written in order, waits for room, and says what went wrong."""

from __future__ import annotations

import sys
import threading

import pytest

from walktalk.studies.execution.process import TURN, BackgroundWriter, short_turns


@pytest.mark.parametrize("beside", [False, True])
def test_all_is_done_in_order(beside):
    done: list[int] = []
    with BackgroundWriter(beside) as writer:
        for number in range(50):
            writer.do(lambda number=number: done.append(number))
    assert done == list(range(50))


def test_it_is_done_beside():
    """Whoever gives work goes on: this would wait for ever otherwise."""
    gate, done = threading.Event(), []
    with BackgroundWriter(True) as writer:
        writer.do(gate.wait)
        writer.do(lambda: done.append(1))
        assert not done
        gate.set()
        writer.wait()
        assert done == [1]


def test_no_more_waits_than_there_is_room_for():
    gate, done = threading.Event(), []
    with BackgroundWriter(True, most=10) as writer:
        writer.do(gate.wait, 6)
        opener = threading.Timer(0.01, gate.set)
        opener.start()
        writer.do(lambda: done.append("second"), 6)  # comes back only when the first is written
        assert gate.is_set()
    assert done == ["second"]


def test_what_went_wrong_is_raised():
    def full_disk() -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"), BackgroundWriter(True) as writer:
        writer.do(full_disk)
    with BackgroundWriter(True) as writer:
        writer.do(full_disk)
        with pytest.raises(OSError, match="no space"):
            writer.wait()


def test_turns_are_short_only_meanwhile():
    before = sys.getswitchinterval()
    with short_turns():
        assert sys.getswitchinterval() == pytest.approx(TURN)
    with short_turns(False):
        assert sys.getswitchinterval() == before
    assert sys.getswitchinterval() == before
