"""What a node writes down while it runs: every event in its trace, what matters in its log, and counts for its metrics.

Each line of the trace is handed to the system before the node goes on: a `kill -9` loses none. A power cut loses those
since the last checkpoint, as it does all else that happened since: before a checkpoint is written, the trace up to it
is forced to the disk (`EventLog.sync`).
"""

from __future__ import annotations

import collections
import gzip
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from walktalk import __version__
from walktalk.core.errors import StudyError
from walktalk.core.wall_clock import wall_seconds
from walktalk.protocols import AGGREGATE
from walktalk.records import TraceRow, make_folder, sync_folder, write_bytes
from walktalk.runtimes.peers.node.event_log import event_log_files, name_of_part, part_of_life
from walktalk.runtimes.peers.node.news import LINES, News
from walktalk.runtimes.peers.node.state import Clock
from walktalk.runtimes.peers.node.statement import Exchanged
from walktalk.runtimes.peers.wire.session import Endpoint

log = logging.getLogger(__name__)

PART = 8 << 20  # bytes: at 18 KB/s seven minutes; half a megabyte when it is compressed


def _size(path: Path) -> int:
    """The size of a file in bytes; 0 where it has just been compressed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class Archive:
    """Compresses parts that are full, in a thread, and deletes the oldest where there are too many."""

    def __init__(self, folder: Path, keep: float) -> None:
        """
        - `folder`: the node's own.
        - `keep`: bytes of compressed parts, over all lives; infinite: all of them.
        """
        self._folder, self._keep = folder, keep
        self._lock = threading.Lock()

    def tidy(self, part_bytes: int, current: Path) -> None:
        """Compress what is full and is not the current part, in a thread."""
        full = [
            path
            for path in event_log_files(self._folder)
            if path != current and path.suffix != ".gz" and _size(path) >= part_bytes
        ]
        if full:
            threading.Thread(target=self._tidy, args=(full,), name="attic", daemon=True).start()

    def _tidy(self, full: list[Path]) -> None:
        with self._lock:
            try:
                for path in full:
                    if path.exists():  # else it was the turn of another thread
                        write_bytes(path.with_name(f"{path.name}.gz"), gzip.compress(path.read_bytes(), mtime=0))
                        path.unlink()
                self._forget()
            except (OSError, StudyError) as error:  # a full disk: the parts are still there, and their turn comes again
                log.warning("%s: parts of the trace could not be compressed: %s", self._folder, error)

    def _forget(self) -> None:
        """Delete the oldest, where there are too many."""
        files = {name: path for path in self._folder.glob("trace-*.gz") if (name := name_of_part(path)) is not None}
        sizes = {name: path.stat().st_size for name, path in files.items()}
        total = sum(sizes.values())
        for name in sorted(files):
            if total <= self._keep:
                return
            files[name].unlink()
            total -= sizes[name]
            log.info("%s is deleted: no more than %.0f MB of traces are to be kept", files[name], self._keep / 1e6)


WAITING = 100_000  # lines: some 20 MB
TRY_AGAIN = 1.0  # seconds until a full disk is tried again


class EventLog:
    """Writes a node's trace into its folder, in parts, and waits where the disk is full.

    Where the disk is full, rows wait in memory until there is room again, at most `WAITING` of them: what happens after
    that is lost to the trace, and a line in it and in the log says how much.
    """

    def __init__(self, folder: Path, life: int, *, keep: float = math.inf, part_bytes: int = PART) -> None:
        """
        - `folder`: the node's own.
        - `life`: which of its lives this is.
        - `keep`: bytes of old parts that are kept, compressed; all, unless given.
        - `part_bytes`: a part that has so many is full.
        """
        make_folder(folder)
        self._folder, self.life, self._part, self._full = folder, life, 0, part_bytes
        self._path = folder / part_of_life(life, 0)
        self._file = self._opened()
        self._size = 0  # bytes of whole lines that are in the file
        self._next_part = part_bytes  # the size at which another part is begun
        self._attic = Archive(folder, keep)
        self._attic.tidy(part_bytes, self._path)  # what an earlier life has left
        self._full_parts: list[int] = []  # that are not safe on the disk yet
        self._syncing = threading.Lock()
        self._waiting: list[bytes] = []
        self._lost = 0
        self._again = 0.0  # when to try to write again

    def write(self, row: TraceRow) -> None:
        """Write a row, with one call of the system: a line is there whole or not at all."""
        line = json.dumps(row).encode() + b"\n"
        if self._waiting:
            self._wait(line)
        elif not self._write(line):
            log.warning("%s cannot be written: the disk is full? Lines wait in memory meanwhile", self._path)
            self._again = time.monotonic() + TRY_AGAIN
            self._wait(line)

    @property
    def behind(self) -> int:
        """Lines that wait for room on the disk, or were lost for want of it."""
        return len(self._waiting) + self._lost

    def sync(self) -> None:
        """Force all that was written by now to the disk; from any thread."""
        with self._syncing:
            full, self._full_parts = self._full_parts, []
            for file in (*full, self._file):
                os.fsync(file)
            for file in full:
                os.close(file)
            sync_folder(self._folder)

    def close(self) -> None:
        """Write what still waits, and close the file."""
        self._again = 0.0
        if self._waiting:
            self._catch_up()
        if self._waiting:
            log.warning("%s: %d lines could not be written", self._path, len(self._waiting) + self._lost)
        with self._syncing:
            for file in (*self._full_parts, self._file):
                os.close(file)
            self._full_parts = []

    def _wait(self, line: bytes) -> None:
        """Keep a line in memory; those that wait are written if it is time."""
        if len(self._waiting) < WAITING:
            self._waiting.append(line)
        else:
            self._lost += 1
        if time.monotonic() >= self._again:
            self._catch_up()

    def _catch_up(self) -> None:
        self._again = time.monotonic() + TRY_AGAIN
        if not self._write(b"".join(self._waiting)):
            return
        self._waiting.clear()
        lost, self._lost = self._lost, 0
        if lost:
            log.warning("%s: %d lines are missing: the disk was full", self._path, lost)
            self.write(TraceRow(wall_seconds(), -1, "missing", number=lost))

    def _write(self, data: bytes) -> bool:
        """Write bytes; whether all of it was written. Of what was not, nothing is left in the file."""
        try:
            written = os.write(self._file, data)
        except OSError:
            written = 0
        if written == len(data):
            self._size += written
            if self._size >= self._next_part:
                self._turn_over()
            return True
        if written:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
        return False

    def _turn_over(self) -> None:
        """Begin another part. Where none can be made, this one goes on, and it is tried again later."""
        before, self._path = self._path, self._folder / part_of_life(self.life, self._part + 1)
        try:
            another = self._opened()
        except OSError:
            self._path, self._next_part = before, self._size + self._full
            return
        with self._syncing:
            self._full_parts.append(self._file)
            self._file, self._part, self._size, self._next_part = another, self._part + 1, 0, self._full
        self._attic.tidy(self._full, self._path)

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


SELDOM = (
    "suspected",
    "elected",
    "stepped_down",
    "found",
    "lost",
    "silent",
    "restarted",
    "retired",
    "rerouted",
    "handed_on",
    "saved",
)
"""Events that are counted one by one, by the trace's own words."""


class Counts:
    """Counts what is in the trace of this life, for metrics. One thread adds, others may read."""

    def __init__(self) -> None:
        self.sent_bytes: collections.Counter[tuple[int, str]] = collections.Counter()  # by neighbour and kind
        self.sent_messages: collections.Counter[tuple[int, str]] = collections.Counter()
        self.received_messages: collections.Counter[int] = collections.Counter()  # by neighbour
        self.events: collections.Counter[str] = collections.Counter(dict.fromkeys(SELDOM, 0))
        self.trainings = 0
        self.training_seconds = 0.0
        self.aggregates_since: float | None = None  # by the trace's clock; None where it does not aggregate
        self._begun: dict[int, float] = {}  # trainings under way, by number

    def add(self, row: TraceRow) -> None:
        """Count one more line of the trace."""
        event = row.event
        if event == "send":
            key = (row.peer, str(row.detail["kind"]))
            self.sent_bytes[key] += row.bytes
            self.sent_messages[key] += 1
        elif event == "receive":
            self.received_messages[row.peer] += 1
        elif event in ("train", "differentiate"):
            self._begun = {row.number: row.time}  # one at a time: what was given up before does not count
        elif event == "trained":
            self.trainings += 1
            self.training_seconds += max(0.0, row.time - self._begun.pop(row.number, row.time))
        elif event == "record":
            if row.detail == AGGREGATE and self.aggregates_since is None:
                self.aggregates_since = row.time
        elif event in self.events:
            self.events[event] += 1
            if event == "elected":
                self.aggregates_since = row.time
            elif event == "stepped_down":
                self.aggregates_since = None


class Reports:
    """Everything that a node writes down while it runs: its trace, its log, and the counts that its metrics show."""

    def __init__(self, endpoint: Endpoint, event_log: EventLog, clock: Clock, elected: Callable[[], None]) -> None:
        """
        - `endpoint`: the node's place.
        - `event_log`: where its trace is written.
        - `clock`: the node's.
        - `elected`: called when this node becomes the aggregator.
        """
        self.news, self.counts, self.event_log = News(endpoint), Counts(), event_log
        self.exchanged = Exchanged(__version__)
        self._node, self._clock, self._elected = endpoint.number, clock, elected

    def trace(self, event: str, slot: str = "", **columns: Any) -> None:
        """Write a line of the trace."""
        self.write(TraceRow(self._clock.wall, self._node, event, slot, **columns))

    def write(self, row: TraceRow) -> None:
        """Write a line of the trace that is there already; those of some events are in the log, too."""
        if row.event in LINES:
            self.news.event(row.event, row.peer, row.walk, row.number)
        self.counts.add(row)
        self.exchanged.waiting.append(row)
        self.event_log.write(row)
        if row.event == "elected":
            self._elected()
