"""Which life of a node this is: a number that grows with every start, whatever the clock of the machine says.

Neighbours tell a new message from a replayed one by it, so a node whose clock was set back would be mute if it were the
time alone. The last one is written down in the node's folder; where that is gone, the time will do.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path

from walktalk.errors import StudyError
from walktalk.records import write_text

log = logging.getLogger(__name__)

NAME = "life"


def next_life(folder: Path) -> int:
    """One more than the last that was noted in a folder, and no less than the time in nanoseconds."""
    life = time.time_ns()
    with suppress(OSError, ValueError):
        life = max(life, int((folder / NAME).read_text()) + 1)
    note_life(folder, life)
    return life


def note_life(folder: Path, life: int) -> None:
    """The next life is a later one than this, which was begun here or which neighbours have heard of."""
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, f"{life}\n")
    except (OSError, StudyError) as error:
        log.warning("%s cannot be written (%s): after the clock is set back, neighbours may not listen", path, error)
