"""Many nodes on one machine, each a process of its own; and how a node's process ends and writes its log.

Processes come from a fork server that has torch and the rest already loaded: twenty nodes are there in seconds, where
twenty fresh interpreters would take a minute, and they share the memory of the code.
"""

from __future__ import annotations

import datetime
import faulthandler
import json
import logging
import multiprocessing as mp
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, get_args

from walktalk.core.errors import SpecError
from walktalk.core.lazy import later

if TYPE_CHECKING:
    import torch
else:
    torch = later("torch")

Job = TypeVar("Job")

PRELOADED = ("torch", "zenoh", "networkx", "scipy.sparse.csgraph", "scipy.sparse.linalg")
"""Beside the module of what is run: what every node on a random graph imports, shared by all of them (20 nodes in a
short run: 45 MB each in place of 60, 5.5 CPU seconds in place of 7.8). What only some nodes need is not here: those
import it by themselves, as one does whose optimizer is neither SGD nor Adam (`torch._dynamo`: 2 s, 73 MB)."""

GRACE = 20.0  # seconds between asking a process to leave and ending it


class Fleet:
    """The processes of all nodes of a run on this machine."""

    def __init__(self, target: Callable[[Job], None], jobs: Sequence[Job], names: Sequence[str]) -> None:
        self._context = mp.get_context("forkserver")
        self._context.set_forkserver_preload([*PRELOADED, target.__module__])
        self._target: Callable[..., None] = target
        self.processes = [self._start(job, name) for job, name in zip(jobs, names, strict=True)]

    def _start(self, job: object, name: str) -> BaseProcess:
        process = self._context.Process(target=_work, args=(self._target, job), name=name, daemon=True)
        process.start()
        return process

    def restart(self, index: int, job: object) -> None:
        """Start another process in place of one that has ended."""
        before = self.processes[index]
        before.join()
        self.processes[index] = self._start(job, before.name)

    def add(self, job: object, name: str) -> int:
        """Start one more process; its index."""
        self.processes.append(self._start(job, name))
        return len(self.processes) - 1

    def signal(self, index: int, number: int) -> None:
        """Send a signal to one of them."""
        pid = self.processes[index].pid
        if pid is not None:
            os.kill(pid, number)

    def wait(self, check: Callable[[], None] = lambda: None) -> None:
        """Wait until all have ended, calling `check` now and then; if it raises, they are asked to leave."""
        try:
            while any(process.is_alive() for process in self.processes):
                for process in self.processes:
                    process.join(0.05 if process.is_alive() else 0)
                    check()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ask all to leave, and end those that do not."""
        for index, process in enumerate(self.processes):
            with suppress(ProcessLookupError):  # of one that is gone by then, however fast
                if process.is_alive():
                    self.signal(index, signal.SIGTERM)
                    self.signal(index, signal.SIGCONT)  # a hung one must wake up to hear it
        end = time.monotonic() + GRACE
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
        for process in self.processes:
            if process.is_alive():
                process.kill()
                process.join()

    def failed(self) -> list[str]:
        """Names of those that ended with an error."""
        return [process.name for process in self.processes if process.exitcode]


def leave_on_signals(leave: Callable[[], None]) -> None:
    """Ctrl-C, SIGTERM and a terminal that is closed ask the node to leave; a second Ctrl-C or SIGTERM ends it at once.

    A terminal that is closed may say so twice, as its shell does, too. Under `nohup` it says nothing.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL)
        leave()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, handle)


def end_process() -> None:
    """Leave with exit code 0 while threads still compute: an ordinary exit would tear the interpreter down under them,
    and end in an abort. Nothing may be left to do."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def quiet_process() -> None:
    """Set up a process that shares its machine with many like it."""
    torch.set_num_threads(1)
    sys.setswitchinterval(0.0005)  # a message must not wait 5 ms for a training thread to let go of the interpreter
    faulthandler.enable()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")


def _work(target: Callable[[Job], None], job: Job) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches everybody; the launcher passes it on
    quiet_process()
    threading.Thread(target=_leave_with_the_launcher, name="launcher", daemon=True).start()
    target(job)


def _leave_with_the_launcher() -> None:
    """Where the launcher is killed, nobody is left to stop its nodes: they leave by themselves."""
    launcher = mp.parent_process()
    if launcher is not None:
        launcher.join()
        os.kill(os.getpid(), signal.SIGTERM)


# -- logs -------------------------------------------------------------------------------------------------------------

LogFormat: TypeAlias = Literal["text", "json"]
FOR_PEOPLE = "%(asctime)s %(message)s"


class JsonLines(logging.Formatter):
    """Formats a log record as one JSON object: time, level, node, message, logger, and `error` with a traceback."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line of JSON."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        said = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "node": self._node,
            "message": record.getMessage().removeprefix(f"{self._node}: "),
            "logger": record.name,
        }
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


class ToStderr(logging.Handler):
    """Writes each line to what is stderr at that moment: the one of the beginning may have been closed since."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line of the log, whoever closed the stream before."""
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def write_logs(form: str, node: str) -> None:
    """Let this process log in this form, to stderr.

    Args:
        form: text or json.
        node: The node's name.
    """
    if form not in get_args(LogFormat):
        raise SpecError(f"--log-format {form!r} is not known; it is one of {', '.join(get_args(LogFormat))}")
    handler = ToStderr()
    handler.setFormatter(JsonLines(node) if form == "json" else logging.Formatter(FOR_PEOPLE))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(form == "json")  # they would be lines of another form
