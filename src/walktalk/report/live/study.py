"""A study that runs, as a page: a process of its own builds and serves it, so that the run is not held up.

The run hands over what it reports anyway: how far it is, and its new evaluations. It writes them to a pipe without ever
waiting; what the pipe does not take at once goes with the next report. When the run's process ends, however it ends,
the pipe closes and the server goes too.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from walktalk.records import HistoryRow
from walktalk.report.live.board import Board
from walktalk.report.live.pages import StudyPage
from walktalk.report.live.server import Door, Server
from walktalk.studies import Progress, StudySpec

SECONDS_BETWEEN_REPORTS = 0.2
SECONDS_BETWEEN_PAGES = 1.0
SECONDS_AT_MOST = 10.0  # between two pages, however long one takes
SHARE_OF_TIME = 0.05  # that building pages may take: on a machine with few processors the run needs them
LAST_CALL = 5.0  # seconds in which open pages may take the last state


class LivePage:
    """The run's end of it: call it with every report."""

    def __init__(self, door: Door, pipe: socket.socket) -> None:
        self.url = door.url
        self._pipe = pipe
        self._pipe.setblocking(False)
        self._waiting = bytearray()  # what the pipe has not taken yet
        self._rows: list[HistoryRow] = []
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        """Tell how far the run is; cheap, and never waits."""
        self._rows += progress.rows
        now = time.monotonic()
        if now < self._next and progress.done < progress.total:
            return
        self._next = now + SECONDS_BETWEEN_REPORTS
        facts = {name: getattr(progress, name) for name in ("done", "total", "time", "bits", "loss", "phase")}
        facts["rows"] = [[*row[:-1], None if row.further is None else dict(row.further)] for row in self._rows]
        self._rows.clear()
        self._send({"progress": facts})

    def finish(self) -> None:
        """The study is done and its report is written: open pages become that, and the address shows it from now on."""
        self._waiting += json.dumps({"done": True}).encode() + b"\n"
        self._pipe.settimeout(LAST_CALL)
        with suppress(OSError):  # the server is gone: nobody looks any more
            self._pipe.sendall(self._waiting)
        self._waiting.clear()

    def _send(self, message: dict[str, Any]) -> None:
        self._waiting += json.dumps(message).encode() + b"\n"
        with suppress(OSError):  # full for the moment, or nobody is there to read it
            while self._waiting:
                del self._waiting[: self._pipe.send(self._waiting[: 2**16])]


@contextmanager
def live_page(
    folder: Path, spec: StudySpec, engine: str, *, host: str | None = None, port: int = 0
) -> Iterator[LivePage]:
    """A page of the study at `.url` while the block lasts.

    `host`: the interface to listen on, this machine alone if left out; `port`: 0 takes a free one.
    """
    door = Door(host, port)
    ours, theirs = socket.socketpair()
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    process = context.Process(target=_serve, args=(door, ours, theirs, folder, spec, engine), daemon=True)
    process.start()
    theirs.close()
    door.socket.close()
    try:
        yield LivePage(door, ours)
    finally:
        with suppress(OSError):
            ours.shutdown(socket.SHUT_WR)
        process.join(LAST_CALL + 2.0)
        ours.close()
        if process.is_alive():
            process.terminate()


def _serve(door: Door, theirs: socket.socket, pipe: socket.socket, folder: Path, spec: StudySpec, engine: str) -> None:
    """The server's process, from its start to its end."""
    theirs.close()  # a fork has the run's end of the pipe, too: the pipe would never be seen to close
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the run, which may want to say something before it ends
    page, board, over = StudyPage(folder, spec, engine), Board(), threading.Event()
    server = Server(door, board, page.html, folder)
    server.start()
    builder = threading.Thread(target=_build, args=(page, board, over), daemon=True)
    builder.start()
    with pipe.makefile("rb") as lines:
        for line in lines:
            message = json.loads(line)
            if "progress" in message:
                rows = [HistoryRow(*row) for row in message["progress"].pop("rows")]
                page.take(message["progress"], rows)
                board.show(progress=page.progress())
            else:  # done: the report is there, and stays here until the run's process goes
                over.set()
                builder.join()
                board.show(parts=page.final(), progress=page.progress(), ended=True)
    if not board.state.ended:
        board.show(progress=page.progress(stopped=True), ended=True)
    board.wait_until_taken(LAST_CALL)
    server.stop()


def _build(page: StudyPage, board: Board, over: threading.Event) -> None:
    """Build the page again whenever there is something new and somebody looks, but seldom enough."""
    pause = SECONDS_BETWEEN_PAGES
    while not over.wait(pause):
        if not page.changed or (board.state.parts is not None and not board.watched):
            continue
        page.draw()
        began = time.thread_time()  # of a processor: while the run has it, this thread only waits
        board.show(parts=page.parts())
        took = time.thread_time() - began
        pause = min(max(SECONDS_BETWEEN_PAGES, took / SHARE_OF_TIME), SECONDS_AT_MOST)
