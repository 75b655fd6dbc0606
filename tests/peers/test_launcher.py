"""Stopping the processes of a run, and closing connections, whatever happens meanwhile."""

from __future__ import annotations

import io
import logging
import signal
import sys
import time

import pytest
import zenoh

from walktalk.runtimes.peers import Fleet, close_session, leave_on_signals, write_logs


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


def test_a_terminal_that_is_closed_lets_a_node_leave_in_order() -> None:
    """It ended at once, and what it had learned since its last checkpoint was lost with its walks."""
    asked: list[str] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
        leave_on_signals(lambda: asked.append("leave"))
        for _ in range(2):  # the shell says it, too
            signal.raise_signal(signal.SIGHUP)
        assert asked == ["leave"]
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        leave_on_signals(lambda: asked.append("again"))
        signal.raise_signal(signal.SIGHUP)
        assert asked == ["leave"]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_log_goes_to_what_is_stderr_now_not_to_a_stream_that_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    first, second = io.StringIO(), io.StringIO()
    try:
        monkeypatch.setattr(sys, "stderr", first)
        write_logs("text", "a")
        logging.warning("one")
        assert first.getvalue().endswith(" one\n")
        first.close()
        monkeypatch.setattr(sys, "stderr", second)
        logging.warning("100 % of two")
        assert second.getvalue().endswith(" 100 % of two\n")
        assert second.getvalue().count("\n") == 1  # no traceback of the logging itself
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
