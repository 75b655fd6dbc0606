"""A node's trace, kept so that a `kill -9` loses a second of it at most: small files, each closed when it is written.

The columns are those of `records.trace`. Times are seconds of the wall clock; `number` counts a node's own trainings,
and its messages to each neighbour; `key` of `send` and `receive` is the life of the sender, so that no two messages
are alike even if a node came back. `traces.merge` makes one trace of all diaries, with numbers as the simulator's.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from pathlib import Path

from walktalk.records import TRACE_COLUMNS, TraceWriter

Row = tuple[object, ...]
FLUSH_AFTER = 1.0  # seconds


class Diary:
    """Takes rows from the node's loop and writes them in a thread of its own."""

    def __init__(self, folder: Path, life: int) -> None:
        self._folder, self._life, self._piece = folder, life, 0
        self._rows: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="diary", daemon=True)
        self._thread.start()

    def note(self, row: Row) -> None:
        """Keep a row, in the order of the columns."""
        self._rows.put(row)

    def close(self) -> None:
        """Write what is left."""
        self._rows.put(None)
        self._thread.join()

    def _run(self) -> None:
        rows: list[Row] = []
        flush_at = time.monotonic() + FLUSH_AFTER
        while True:
            try:
                row = self._rows.get(timeout=max(0.0, flush_at - time.monotonic()))
            except queue.Empty:
                self._write(rows)
                rows, flush_at = [], time.monotonic() + FLUSH_AFTER
                continue
            if row is None:
                self._write(rows)
                return
            rows.append(row)

    def _write(self, rows: list[Row]) -> None:
        if not rows:
            return
        columns: dict[str, list[object]] = dict(
            zip(TRACE_COLUMNS, (list(c) for c in zip(*rows, strict=True)), strict=True)
        )
        columns["detail"] = [d if isinstance(d, str) else json.dumps(d) for d in columns["detail"]]
        with TraceWriter(self._folder / f"trace-{self._life}-{self._piece:06d}.parquet") as writer:
            writer.write(columns)
        self._piece += 1
