"""The files of a node's trace: a life's diary is written in parts, and a part that is full is compressed.

    trace-LIFE.jsonl, trace-LIFE.1.jsonl, …    parts of a life; the last one is being written
    trace-LIFE.jsonl.gz, …                     the same, finished; where both are there, this one is whole

Nothing is deleted unless somebody has said how much is to be kept.
"""

from __future__ import annotations

import gzip
import logging
import re
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from walktalk.errors import StudyError
from walktalk.records import write_bytes

log = logging.getLogger(__name__)

PATTERN = r"trace-\d{1,20}(?:\.\d{1,6})?\.jsonl(?:\.gz)?"
_NAME = re.compile(r"trace-(\d{1,20})(?:\.(\d{1,6}))?\.jsonl(\.gz)?")
PART = 8 << 20  # bytes: at 18 KB/s seven minutes; half a megabyte when it is compressed


class PartName(NamedTuple):
    """Which part a file holds; they sort in the order in which they were written."""

    life: int
    number: int  # of the part, from 0
    compressed: bool


def part_of_life(life: int, number: int) -> str:
    """The name of the file while it is written."""
    return f"trace-{life}.{number}.jsonl" if number else f"trace-{life}.jsonl"


def name_of_part(path: Path) -> PartName | None:
    """What a file's name says; None where it is no part of a diary."""
    found = _NAME.fullmatch(path.name)
    return None if found is None else PartName(int(found[1]), int(found[2] or 0), bool(found[3]))


def files_of_diaries(folder: Path) -> list[Path]:
    """Every file of a diary in a folder."""
    return [path for path in folder.glob("trace-*") if name_of_part(path) is not None]


def parts_in(folder: Path) -> dict[int, list[Path]]:
    """For every life, in order, its parts, in order; each once."""
    files = {name: path for path in folder.glob("trace-*") if (name := name_of_part(path)) is not None}
    lives: dict[int, list[Path]] = {}
    for name in sorted(files):
        if name.compressed or name._replace(compressed=True) not in files:
            lives.setdefault(name.life, []).append(files[name])
    return lives


def opened_part(path: Path) -> IO[bytes] | gzip.GzipFile:
    """To be read, compressed or not."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def lines_of_part(path: Path) -> Iterator[bytes]:
    """Its lines; a `ValueError` where the damage of a damaged file begins."""
    with opened_part(path) as file:
        try:
            yield from file
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            log.warning("%s is damaged; what follows in this life of the node is left out", path)
            raise ValueError(f"{path} is damaged") from error


def _size(path: Path) -> int:
    """In bytes; 0 where it has just been compressed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class Attic:
    """Compresses parts that are full, in a thread; deletes the oldest where no more than so much is to be kept."""

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
            for path in files_of_diaries(self._folder)
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
