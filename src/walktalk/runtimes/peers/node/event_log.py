"""A node's trace in its folder, one JSON line an event: which files there are, how they are read and handed out.

The columns are those of `records.history`. Times are seconds of the wall clock; `number` counts a node's own trainings,
and its messages to each neighbour; `key` of `send` and `receive` is the life of the sender, so that no two messages
are alike even if a node came back. `replaying.merge` makes one trace of all logs, with numbers as the simulator's.

The trace of a life is written in parts, and a part that is full is compressed:

    trace-LIFE.jsonl, trace-LIFE.1.jsonl, …    parts of a life; the last one is being written
    trace-LIFE.jsonl.gz, …                     the same, finished; where both are there, this one is whole

Nothing is deleted unless somebody has said how much is to be kept.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from torch import Tensor

from walktalk.core.errors import StudyError
from walktalk.core.wall_clock import wall_nanoseconds, wall_seconds
from walktalk.records import TraceRow, load_checkpoint, make_folder, move, save_checkpoint
from walktalk.runtimes.peers.node.roster import MEMBERS_FILE
from walktalk.runtimes.peers.wire.session import PIECE
from walktalk.runtimes.stacked import is_better

log = logging.getLogger(__name__)

PATTERN = r"trace-\d{1,20}(?:\.\d{1,6})?\.jsonl(?:\.gz)?"
_NAME = re.compile(r"trace-(\d{1,20})(?:\.(\d{1,6}))?\.jsonl(\.gz)?")


class PartName(NamedTuple):
    """Which part of an event log a file holds; they sort in the order in which they were written."""

    life: int
    number: int  # of the part, from 0
    compressed: bool


def part_of_life(life: int, number: int) -> str:
    """The name of the file of a part while it is written."""
    return f"trace-{life}.{number}.jsonl" if number else f"trace-{life}.jsonl"


def name_of_part(path: Path) -> PartName | None:
    """What a file's name says; None where it is no part of an event log."""
    found = _NAME.fullmatch(path.name)
    return None if found is None else PartName(int(found[1]), int(found[2] or 0), bool(found[3]))


def event_log_files(folder: Path) -> list[Path]:
    """Every file of an event log in a folder."""
    return [path for path in folder.glob("trace-*") if name_of_part(path) is not None]


def parts_in(folder: Path) -> dict[int, list[Path]]:
    """The parts of every life, each once, both in order."""
    files = {name: path for path in folder.glob("trace-*") if (name := name_of_part(path)) is not None}
    lives: dict[int, list[Path]] = {}
    for name in sorted(files):
        if name.compressed or name._replace(compressed=True) not in files:
            lives.setdefault(name.life, []).append(files[name])
    return lives


def open_part(path: Path) -> IO[bytes] | gzip.GzipFile:
    """Open a part for reading, compressed or not."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


LONGEST_LINE = 1 << 20  # bytes; the longest that a node writes has some kilobytes
TIMES_COMPRESSED = 60  # more than so many times as large no part becomes; a node's own are 10 to 30 times as large
SMALL = 1 << 20  # bytes that a part may have in any case


def lines_of_part(path: Path) -> Iterator[bytes]:
    """Read the lines of a part; a `ValueError` where the damage of a damaged file begins, or it is no log of a node."""
    with open_part(path) as file:
        left = max(SMALL, TIMES_COMPRESSED * os.fstat(file.fileno()).st_size)
        try:
            while line := file.readline(LONGEST_LINE + 1):
                left -= len(line)
                if len(line) > LONGEST_LINE or left < 0:
                    raise EOFError("more than a node writes")
                yield line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            log.warning("%s is damaged; what follows in this life of the node is left out", path)
            raise ValueError(f"{path} is damaged") from error


def read_lines(parts: Iterable[Path]) -> list[TraceRow]:
    """Read what was written down in one life; what follows a damaged line is left out."""
    rows: list[TraceRow] = []
    try:
        for path in parts:
            for line in lines_of_part(path):
                rows.append(TraceRow(*json.loads(line)[: len(TraceRow._fields)]))  # a later version may have more
    except OSError:  # the part has another name by now
        raise
    except Exception as error:  # somebody else has written it
        log.debug("what follows a damaged line is left out: %s", error)
    return rows


# -- What a node hands out to whoever collects: its event logs and its copy of the model, piece by piece. Never any data
# All of it lies in the node's own folder, so that it can be read there just as well when the node is gone:
#
# trace-LIFE.jsonl …   what it wrote down, in parts
# copy.safetensors     its copy of the model, weights by name, as `load_state_dict` takes them
# best.safetensors     the best copy that it has had, where the study asks for that
# statement.json       what it has done and what has left it, signed (`node.statement`)

COPY, BEST, STATEMENT = "copy.safetensors", "best.safetensors", "statement.json"
FILES = re.compile(rf"{PATTERN}|(copy|best)\.safetensors|statement\.json")
"""All that is ever asked for or handed out."""
PATIENCE = 20.0  # seconds without a question after which nobody waits any more
EARLIER = "earlier"  # the folder of what a run from before has left


class Copy(NamedTuple):
    """A node's copy of the model, and its role in the protocol."""

    model: Tensor  # as a row
    role: str  # that the protocol gave it: the aggregate, or a member
    key: int  # the aggregator's term, or the member's number: a walk's, a node's


class BestCopy(NamedTuple):
    """A node's copy of the model at the moment at which models were best, as far as the node knew."""

    copy: Copy
    measure: str  # by which it is the best
    value: float  # of that measure: the mean over nodes, of what each measured last
    iteration: int  # of all nodes together, as far as was known

    @property
    def facts(self) -> dict[str, Any]:
        """Everything but the model."""
        said = {"role": self.copy.role, "key": self.copy.key}
        return {**said, "measure": self.measure, "value": self.value, "iteration": self.iteration}


class FileServer:
    """Hands out a node's trace and its copy of the model, from threads that are not the node's."""

    def __init__(
        self,
        folder: Path,
        newest: Callable[[], Copy | None],
        named: Callable[[Tensor], Mapping[str, Tensor]] | None,
        state: Callable[[], None] = lambda: None,
        handed_out: Callable[[str, int, bool, float], None] = lambda file, size, begins, moment: None,
    ) -> None:
        """
        - `folder`: the node's own.
        - `newest`: its copy as it is now; None where it has none yet.
        - `named`: a model's weights by name; None: it hands out no copy.
        - `state`: writes the node's statement.
        - `handed_out`: called with every piece of a file: its name, bytes, whether it is the first, and the moment.
        """
        self._state, self._handed_out = state, handed_out
        self._folder, self._newest, self._named = folder, newest, named
        self._asked_at = -PATIENCE  # when somebody who waits for the end asked last
        self._lock = threading.Lock()
        self.collected = False  # somebody has got all of it
        self._best: BestCopy | None = None  # what is not written yet
        self._best_facts = self._earlier_best()  # of the best so far

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for the end of the run, to collect what this node has by then."""
        return not self.collected and time.monotonic() < self._asked_at + PATIENCE

    def answer(self, asked: Mapping[str, str], facts: Mapping[str, Any]) -> bytes:
        """Answer with a piece of the file that is asked for; else, as JSON, with which files there are, and the facts.

        Asked for: `file` and `from`, the first byte; or `copy` or `statement`, to have that written first; `waits`:
        whoever asks will ask again until the run is over; `collected`: has got everything, and nobody need wait for it
        any more.
        """
        if "waits" in asked:
            self._asked_at = time.monotonic()
        self.collected = self.collected or "collected" in asked
        if "file" in asked:
            return self._piece(asked["file"], int(asked.get("from", "0")))
        if "copy" in asked:
            self.put_copies()
        if "statement" in asked:
            self._write_statement()
        files = {path.name: path.stat().st_size for path in self._folder.iterdir() if FILES.fullmatch(path.name)}
        newest = self._newest() if self._named is not None else None
        copy = None if newest is None else {"role": newest.role, "key": newest.key}
        best = {} if self._best_facts is None else {"best": self._best_facts}
        return json.dumps({"files": files, "copy": copy, **best, **facts}).encode()

    def keep_best(self, best: BestCopy | None) -> None:
        """Keep this copy if it is better than the best so far; it is written with the next checkpoint, or when asked.

        Models are not changed where they lie, so keeping one costs its memory and no time.
        """
        before = self._best_facts
        if best is None:
            return
        if before is None or is_better(best.measure, best.value, float(before["value"])):
            self._best, self._best_facts = best, best.facts

    def _earlier_best(self) -> dict[str, Any] | None:
        """What an earlier life of the node has kept; nothing that is damaged."""
        try:
            facts = load_checkpoint(self._folder / BEST)[1]
            return {**facts, "value": float(facts["value"])}
        except (StudyError, OSError, KeyError, TypeError, ValueError):
            return None

    def put_copies(self) -> None:
        """Write the statement and the copy into the folder, and the best one, where it is a new one."""
        self._write_statement()
        copy = self._newest()
        if copy is None or self._named is None:
            return
        with self._lock:
            self._write(COPY, copy.model, {"role": copy.role, "key": copy.key})
            best = self._best
            if best is not None:
                self._write(BEST, best.copy.model, best.facts)
                self._best = None if self._best is best else self._best  # else a better one has come meanwhile

    def _write_statement(self) -> None:
        """One thread at a time: two would write to one unfinished file."""
        with self._lock:
            self._state()

    def _write(self, file: str, model: Tensor, facts: dict[str, Any]) -> None:
        assert self._named is not None
        weights = {name: tensor.detach().clone() for name, tensor in self._named(model).items()}
        save_checkpoint(self._folder / file, weights, {**facts, "moment": wall_seconds()})

    def _piece(self, name: str, start: int) -> bytes:
        if not FILES.fullmatch(name) or start < 0:
            raise ValueError(f"no such file: {name!r}")
        with (self._folder / name).open("rb") as file:
            file.seek(start)
            piece = file.read(PIECE)
        self._handed_out(name, len(piece), start == 0, wall_seconds())
        return piece


def archive_earlier_run(folder: Path) -> None:
    """Move what an earlier run has left into a folder of its own, so that it is not taken for this one's."""
    left = [*event_log_files(folder), *folder.glob("*.safetensors")]
    left += [path for name in (MEMBERS_FILE, STATEMENT) for path in folder.glob(name)]
    if left:
        aside = folder / EARLIER / str(wall_nanoseconds())
        make_folder(aside)
        for path in left:
            move(path, aside / path.name)
