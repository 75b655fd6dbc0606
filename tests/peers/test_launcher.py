"""Stopping the processes of a run, and closing connections, whatever happens meanwhile."""

from __future__ import annotations

import signal
import time

import pytest
import zenoh

from walktalk.runtimes.peers import Fleet, close_session


def wait_for_the_end(seconds: float) -> None:
    time.sleep(seconds)


class Hasty(Fleet):
    """The first process is gone as soon as it is asked to leave."""

    def signal(self, index: int, number: int) -> None:
        super().signal(index, number)
        if index == 0 and number == signal.SIGTERM:
            self.processes[0].join()


def test_one_that_is_gone_at_once_keeps_no_other_from_being_stopped() -> None:
    fleet = Hasty(wait_for_the_end, [60.0, 60.0, 60.0], ["a", "b", "c"])
    began = time.monotonic()
    fleet.stop()
    assert not any(process.is_alive() for process in fleet.processes)
    assert time.monotonic() - began < 30.0


class Stubborn:
    """A session whose connections Zenoh cannot close in time."""

    def close(self) -> None:
        raise zenoh.ZError("close operation timed out!")


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_session_that_cannot_be_closed_raises_nothing() -> None:
    assert close_session(Stubborn(), 5.0)  # type: ignore[arg-type]
