"""A node's trace, one JSON line an event, each handed to the system before the node goes on: a `kill -9` loses none.

The columns are those of `records.trace`. Times are seconds of the wall clock; `number` counts a node's own trainings,
and its messages to each neighbour; `key` of `send` and `receive` is the life of the sender, so that no two messages
are alike even if a node came back. `traces.merge` makes one trace of all diaries, with numbers as the simulator's.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from walktalk.records import TraceRow

NAME = "trace-{life}.jsonl"


class Diary:
    """Writes rows, in the order of the columns."""

    def __init__(self, folder: Path, life: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(folder / NAME.format(life=life), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, row: TraceRow) -> None:
        """Keep a row. One call of the system, so a line is there whole or not at all."""
        os.write(self._file, json.dumps(row).encode() + b"\n")

    def close(self) -> None:
        """Nothing more will come."""
        os.close(self._file)


def read_lines(path: Path) -> list[TraceRow]:
    """What was written down; a line that the system lost a part of, and what follows, is left out."""
    rows: list[TraceRow] = []
    with path.open("rb") as file:
        for line in file:
            try:
                rows.append(TraceRow(*json.loads(line)))
            except (ValueError, TypeError):
                break
    return rows
