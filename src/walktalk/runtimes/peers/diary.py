"""A node's trace, one JSON line an event, each handed to the system before the node goes on: a `kill -9` loses none.

The columns are those of `records.trace`. Times are seconds of the wall clock; `number` counts a node's own trainings,
and its messages to each neighbour; `key` of `send` and `receive` is the life of the sender, so that no two messages
are alike even if a node came back. `traces.merge` makes one trace of all diaries, with numbers as the simulator's.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from walktalk.records import TraceRow
from walktalk.runtimes.peers.diary_parts import PART, Attic, lines_of_part, part_of_life

log = logging.getLogger(__name__)

WAITING = 100_000  # lines: some 20 MB
TRY_AGAIN = 1.0  # seconds until a full disk is tried again


class Diary:
    """Writes rows, in the order of the columns, in parts (`diary_parts`).

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
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._life, self._part, self._full = folder, life, 0, part_bytes
        self._path = folder / part_of_life(life, 0)
        self._file = self._opened()
        self._size = 0  # bytes of whole lines that are in the file
        self._next_part = part_bytes  # the size at which another part is begun
        self._attic = Attic(folder, keep)
        self._attic.tidy(part_bytes, self._path)  # what an earlier life has left
        self._waiting: list[bytes] = []
        self._lost = 0
        self._again = 0.0  # when to try to write again

    def note(self, row: TraceRow) -> None:
        """Keep a row. One call of the system, so a line is there whole or not at all."""
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

    def close(self) -> None:
        """Nothing more will come."""
        self._again = 0.0
        if self._waiting:
            self._catch_up()
        if self._waiting:
            log.warning("%s: %d lines could not be written", self._path, len(self._waiting) + self._lost)
        os.close(self._file)

    def _wait(self, line: bytes) -> None:
        """A line joins those that wait, which are written if it is time."""
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
            self.note(TraceRow(time.time(), -1, "missing", number=lost))

    def _write(self, data: bytes) -> bool:
        """Whether all of it was written; of what was not, nothing is left in the file."""
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
        """Go on in another part. Where none can be made, in this one, and it is tried again later."""
        before, self._path = self._path, self._folder / part_of_life(self._life, self._part + 1)
        try:
            another = self._opened()
        except OSError:
            self._path, self._next_part = before, self._size + self._full
            return
        os.close(self._file)
        self._file, self._part, self._size, self._next_part = another, self._part + 1, 0, self._full
        self._attic.tidy(self._full, self._path)

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def read_lines(parts: Iterable[Path]) -> list[TraceRow]:
    """What was written down in one life; a line that the system lost a part of, and what follows, is left out."""
    rows: list[TraceRow] = []
    with suppress(ValueError, TypeError):
        for path in parts:
            for line in lines_of_part(path):
                rows.append(TraceRow(*json.loads(line)))
    return rows
