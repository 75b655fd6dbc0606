"""A study that runs, as a page: a process of its own builds and serves it, so that the run is not held up.

The run hands over what it reports anyway: how far it is, and its new evaluations. It writes them to a pipe without ever
waiting; what the pipe does not take at once goes with the next report. When the run's process ends, however it ends,
the pipe closes and the server goes too.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from walktalk.protocols import known
from walktalk.records import RUN_COLUMNS, HistoryRow, StudyFolder, frame
from walktalk.report.figures import with_unit
from walktalk.report.live.server import LiveAddress, PageState, Server
from walktalk.report.page import PageParts, drawings_of, page_html, page_parts
from walktalk.report.study import Running, Study, open_study
from walktalk.studies import Progress, StudySpec

# -- the page of a running study, from the progress and evaluations that it reports -----------------------------------

SCRIPTS = ("live/live.js",)


class StudyPage:
    """Builds the live page of a study from the reports of its run; threads may report and build at once."""

    def __init__(self, folder: Path, spec: StudySpec, engine: str) -> None:
        self.folder, self.spec, self.engine = StudyFolder(folder), spec, engine
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, int], dict[int, HistoryRow]] = {}  # a worker that is started again tells some twice
        self._progress: dict[str, Any] = {}
        self._drawings: dict[str, Any] | None = None
        self._latest: PageParts | None = None
        self._done = False
        self.changed = False

    def add_report(self, progress: dict[str, Any], rows: list[HistoryRow]) -> None:
        """Takes in a report of the run: its progress and its new evaluations."""
        with self._lock:
            self._progress = progress
            for row in rows:
                self._rows.setdefault((row.algorithm, row.repetition), {})[row.iteration] = row
            self.changed = self.changed or bool(rows)

    def progress(self, stopped: bool = False) -> dict[str, Any]:
        """How far it is, as the page shows it."""
        with self._lock:
            told, passed = self._progress, time.monotonic() - self._began
        share = min(1.0, told.get("done", 0) / max(told.get("total", 1), 1)) if told else 0.0
        left = passed * (1.0 - share) / share if share > 0.02 else math.nan
        if self._done:
            words = f"Done in {with_unit('time', passed)}: this is the report now."
        elif stopped:
            words = "Stopped. What is done so far is kept; --resume goes on from there."
        elif not told:
            words = "Getting ready …"
        elif share == 1.0:
            words = "All runs are done; the report is being written …"
        else:
            words = " · ".join(_words(told, left))
        named = known(told.get("loss", {}), self.spec.described)
        losses = {named[label].title: f"{loss:.3g}" for label, loss in told.get("loss", {}).items()}
        return {"share": share, "words": words, "losses": losses, "name": self.spec.name}

    def parts(self) -> dict[str, Any]:
        """The page as far as it is known."""
        with self._lock:
            self.changed = False
            rows = [run[iteration] for run in self._rows.values() for iteration in sorted(run)]
        study = Study(self.folder, self.spec, Running(frame(rows, RUN_COLUMNS), self.engine))
        return self._taken(page_parts(study, self._drawings))

    def draw(self) -> None:
        """Make the drawings that do not change; once."""
        if self._drawings is None:
            self._drawings = drawings_of(Study(self.folder, self.spec))

    def final(self) -> dict[str, Any]:
        """The page of the study that is done, from its folder."""
        self._done = True
        return self._taken(page_parts(open_study(self.folder.path)))

    def html(self) -> str:
        """The page to open: of what is known; before there is anything, one that waits."""
        if self._latest is not None:
            return page_html(self._latest, live=True, scripts=SCRIPTS)
        return waiting_page(self.spec.name)

    def _taken(self, parts: PageParts) -> dict[str, Any]:
        self._latest = parts
        return {"data": parts.data, "sections": parts.sections}


def waiting_page(name: str) -> str:
    """A page that waits for the first thing to show."""
    web = files("walktalk.report") / "web"
    text = {key: (web / path).read_text(encoding="utf-8") for key, path in _WAITING.items()}
    return Template(text.pop("page")).substitute(text, title=escape(name))


_WAITING = {
    "page": "live/waiting.html",
    "theme": "theme.js",
    "page_css": "page.css",
    "css": "live/live.css",
    "script": "live/live.js",
}


def _words(told: dict[str, Any], left: float) -> list[str]:
    share = told["done"] / max(told["total"], 1)
    facts = [f"{share:.0%}", f"{told['done']:,} of {told['total']:,} iterations", str(told["phase"])]
    return facts + ([f"about {with_unit('time', left)} left"] if math.isfinite(left) and left > 1 else [])


SECONDS_BETWEEN_REPORTS = 0.2
SECONDS_BETWEEN_PAGES = 1.0
SECONDS_AT_MOST = 10.0  # between two pages, however long one takes
SHARE_OF_TIME = 0.05  # that building pages may take: on a machine with few processors the run needs them
LAST_CALL = 5.0  # seconds in which open pages may take the last state


class LivePage:
    """The run's end of the live page: call it with every report of progress."""

    def __init__(self, address: LiveAddress, pipe: socket.socket) -> None:
        self.url = address.url
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
    address = LiveAddress(host, port)
    ours, theirs = socket.socketpair()
    context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    process = context.Process(target=_serve, args=(address, ours, theirs, folder, spec, engine), daemon=True)
    process.start()
    theirs.close()
    address.socket.close()
    try:
        yield LivePage(address, ours)
    finally:
        with suppress(OSError):
            ours.shutdown(socket.SHUT_WR)
        process.join(LAST_CALL + 2.0)
        ours.close()
        if process.is_alive():
            process.terminate()


def _serve(
    address: LiveAddress, theirs: socket.socket, pipe: socket.socket, folder: Path, spec: StudySpec, engine: str
) -> None:
    """The server's process, from its start to its end."""
    theirs.close()  # a fork has the run's end of the pipe, too: the pipe would never be seen to close
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the run, which may want to say something before it ends
    page, pages, over = StudyPage(folder, spec, engine), PageState(), threading.Event()
    server = Server(address, pages, page.html, folder)
    server.start()
    builder = threading.Thread(target=_build, args=(page, pages, over), daemon=True)
    builder.start()
    with pipe.makefile("rb") as lines:
        for line in lines:
            message = json.loads(line)
            if "progress" in message:
                rows = [HistoryRow(*row) for row in message["progress"].pop("rows")]
                page.add_report(message["progress"], rows)
                pages.update(progress=page.progress())
            else:  # done: the report is there, and stays here until the run's process goes
                over.set()
                builder.join()
                pages.update(parts=page.final(), progress=page.progress(), ended=True)
    if not pages.state.ended:
        pages.update(progress=page.progress(stopped=True), ended=True)
    pages.wait_until_received(LAST_CALL)
    server.stop()


def _build(page: StudyPage, pages: PageState, over: threading.Event) -> None:
    """Build the page again whenever there is something new and somebody looks, but seldom enough."""
    pause = SECONDS_BETWEEN_PAGES
    while not over.wait(pause):
        if not page.changed or (pages.state.parts is not None and not pages.is_watched):
            continue
        page.draw()
        began = time.thread_time()  # of a processor: while the run has it, this thread only waits
        pages.update(parts=page.parts())
        took = time.thread_time() - began
        pause = min(max(SECONDS_BETWEEN_PAGES, took / SHARE_OF_TIME), SECONDS_AT_MOST)
