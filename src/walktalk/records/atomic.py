"""Files that are there whole or not at all, whatever moment the process or the machine dies at.

The bytes go to a file of another name in the same folder, are forced to the disk, and only then take the final name:
a rename within a folder is atomic. The folder is forced to the disk too, or a power cut could undo the rename.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from walktalk.core.errors import StudyError

FULL = ("No space left on device", "File too large", "Disk quota exceeded")  # as libraries pass the system's word on

PART = ".part"  # how the name of an unfinished file ends


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary name to write to; at the end it takes the place of `path`, or vanishes if there was an error."""
    path = Path(path)
    part = unfinished(path)
    with writing(path):
        make_folder(path.parent)
        try:
            yield part
            finish(part, path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A disk that is full or not ours is the person's to mend: a `StudyError`, whatever library noticed it."""
    try:
        yield
    except OSError as error:
        if not error.strerror:
            raise
        full = next((words for words in FULL if words in str(error)), error.strerror)
        place = path if str(error.filename).endswith(PART) else error.filename or path  # the name that a person knows
        raise StudyError(f"{place}: {full}; choose another place or make room there") from error
    except Exception as error:
        full = next((words for words in FULL if words in str(error)), "")
        if not full:
            raise
        raise StudyError(f"{path}: {full}; make room there, or choose another place") from error


def unfinished(path: Path) -> Path:
    """The temporary name; it carries the process's number, so that two writers never share one."""
    return path.with_name(f".{path.name}.{os.getpid()}{PART}")


UNFINISHED = (f".*{PART}", ".tmp*")  # ours, and what safetensors writes before it gives a file its name


def is_unfinished(path: Path) -> bool:
    """Whether a file of this name is one that is being written, or that a dead process left."""
    return any(path.match(pattern) for pattern in UNFINISHED)


def remove_unfinished(folder: Path) -> None:
    """Remove what dead processes left half-written below a folder that nobody is writing to."""
    for pattern in UNFINISHED:
        for part in folder.rglob(pattern):
            with suppress(OSError):
                part.unlink()


def finish(part: Path, path: Path) -> None:
    """Force the written file to the disk and give it its final name."""
    _sync(part)
    move(part, path)


def move(path: Path, to: Path) -> None:
    """Give a file that is safe on the disk another name, also where the power fails right afterwards."""
    os.replace(path, to)
    for folder in {to.parent, path.parent}:
        sync_folder(folder)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, whose names are there after the power has failed, too."""
    missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in missing:
        sync_folder(one.parent)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a whole file, atomically.

    Args:
        path: the file; it appears whole or not at all.
        content: all of it.
    """
    with replacing(path) as part:
        part.write_bytes(content)


def write_text(path: str | os.PathLike[str], content: str) -> None:
    """Write a whole text file, atomically; UTF-8 and `\\n` on every system, so that the bytes are the same.

    Args:
        path: the file; it appears whole or not at all.
        content: all of it.
    """
    write_bytes(path, content.encode("utf-8"))


def write_unless_there(path: str | os.PathLike[str], content: str) -> None:
    """Writes a text file, unless it has this text already: no room is needed on a disk that is full.

    Args:
        path: the file; it appears whole or not at all.
        content: all of it.
    """
    with suppress(OSError):
        if Path(path).read_bytes() == content.encode("utf-8"):
            return
    write_text(path, content)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Force the names of a folder's files to the disk: without it, a power cut undoes what was made or renamed."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
