"""What a person at a terminal sees: a bar, nothing left over where a study does not start, and Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")  # there is none on Windows

ERASED = "\x1b[2K"
SECONDS = 120  # far more than needed: a terminal that says nothing is an error, not a wait


class Terminal:
    """`walktalk` with a terminal of its own, as a shell would start it."""

    def __init__(self, *words: str) -> None:
        self.process, self.master = pty.fork()
        if self.process == 0:
            environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "30", "OMP_NUM_THREADS": "1"}
            code = "from walktalk.cli import main; main()"
            os.execve(sys.executable, [sys.executable, "-c", code, *words], environment)
        self.seen = ""
        self.deadline = time.monotonic() + SECONDS

    def read(self) -> bool:
        """Take what is there; False at the end."""
        try:
            part = os.read(self.master, 65536)
        except OSError:  # Linux says so when the other side is closed
            return False
        self.seen += part.decode(errors="replace")
        if time.monotonic() > self.deadline:
            os.kill(self.process, signal.SIGKILL)
            raise AssertionError(f"no end: {self.seen[-2000:]}")
        return bool(part)

    def wait_for(self, pattern: str) -> None:
        while not re.search(pattern, self.seen):
            assert self.read(), self.seen

    def press_ctrl_c(self) -> None:
        os.write(self.master, b"\x03")

    def end(self) -> int:
        """The exit code."""
        while self.read():
            pass
        os.close(self.master)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


def plain(text: str) -> str:
    """Without colours and moves of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_nothing_is_left_on_the_line_of_a_study_that_does_not_start(tmp_path: Path) -> None:
    terminal = Terminal("run", "smoke", "--set", "task.hidden=0", "--out", str(tmp_path / "study"))
    assert terminal.end() == 2
    assert "getting ready" in terminal.seen
    assert terminal.seen.rpartition(ERASED)[2].startswith(("error: task.hidden", "\rerror: task.hidden"))
    assert "Traceback" not in terminal.seen


def test_ctrl_c_stops_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    words = ("run", "smoke", "--set", "stop.iterations=6000", "--out", str(folder), "--workers", "2")
    terminal = Terminal(*words)
    terminal.wait_for(r"[1-9]\d*/36000")  # the bar, and training has begun
    terminal.press_ctrl_c()
    assert terminal.end() == 130
    assert "Traceback" not in terminal.seen
    last = plain(terminal.seen).splitlines()[-1]
    assert last == f"stopped; go on with: walktalk run smoke --set stop.iterations=6000 --out {folder} --resume"
    assert list(folder.glob("runs/*/*/checkpoint.safetensors"))
    assert not (folder / "history.csv").exists()
    assert terminal.seen.rfind("\x1b[?25h") > terminal.seen.rfind("\x1b[?25l")  # the cursor is back
