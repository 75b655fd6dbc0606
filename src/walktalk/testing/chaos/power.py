"""What is left on a disk when the power fails: what was forced to it, and nothing else.

A process's `os.fsync` is listened to: a file has the content that it had when it was last forced to the disk, and a
folder the names that it had then. All else may be lost, which is what `restore` makes of it. A `kill -9` does not show
that: the system still writes what the process had handed to it. With `renamed` names are there that were not forced to
the disk, as systems often write them first: a file that was renamed before its content was safe is then empty.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

ENTRIES, CONTENTS = "entries.json", "contents"
Names: TypeAlias = dict[str, int]  # of a folder's files and folders: the number of each, as the file system has it


class DurableCopy:
    """Keeps beside a folder what of it is safe on the disk."""

    def __init__(self, folder: Path, shadow: Path) -> None:
        """
        - `folder`: what is watched; all that is in it now is safe.
        - `shadow`: where that is kept; outlives the process.
        """
        self.folder, self._shadow = folder.resolve(), shadow
        self._contents = shadow / CONTENTS
        self._contents.mkdir(parents=True, exist_ok=True)
        self._entries: dict[str, Names] = {}  # by folder, as a path from the watched one
        self._folders: set[int] = set()
        self._held: dict[int, int] = {}  # by a file's number: kept open, or another would get that number
        self._lock = threading.Lock()
        for place, _, _ in os.walk(self.folder):
            self._keep_names(Path(place))
            for path in Path(place).iterdir():
                if path.is_file():
                    self._keep_content(path)
        self._write()

    @contextmanager
    def watched(self, point: Callable[[str], None] = lambda what: None) -> Iterator[None]:
        """Watch what this process forces to the disk.

        `point`: called before and after whatever changes what is on it, e.g. to cut the power there.
        """
        real: dict[str, Any] = {name: getattr(os, name) for name in ("fsync", "replace", "unlink")}

        def fsync(file: Any) -> None:
            point("before fsync")
            real["fsync"](file)
            self.forced(file if isinstance(file, int) else file.fileno())
            point("after fsync")

        def around(name: str) -> Callable[..., None]:
            def call(*args: Any, **more: Any) -> None:
                point(f"before {name}")
                real[name](*args, **more)
                point(f"after {name}")

            return call

        instead = {"fsync": fsync, "replace": around("replace"), "unlink": around("unlink")}
        try:
            for name, call in instead.items():
                setattr(os, name, call)
            yield
        finally:
            for name, call in real.items():
                setattr(os, name, call)

    def forced(self, file: int) -> None:
        """A file or a folder was forced to the disk."""
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        if path != self.folder and self.folder not in path.parents:
            return
        with self._lock:
            if stat.S_ISDIR(os.fstat(file).st_mode):
                self._keep_names(path)
                self._write()
            elif path.exists():
                self._keep_content(path)

    def _keep_names(self, path: Path) -> None:
        names: Names = {}
        for one in os.scandir(path):
            number = one.inode()
            names[one.name] = number
            if one.is_dir(follow_symlinks=False):
                self._folders.add(number)
        self._entries[str(path.relative_to(self.folder))] = names

    def _keep_content(self, path: Path) -> None:
        number = path.stat().st_ino
        if number not in self._held:
            self._held[number] = os.open(path, os.O_RDONLY)
        part = self._contents / f".{number}"
        shutil.copyfile(path, part)
        part.rename(self._contents / str(number))

    def _write(self) -> None:
        part = self._shadow / f".{ENTRIES}"
        part.write_text(json.dumps({"entries": self._entries, "folders": sorted(self._folders)}))
        part.rename(self._shadow / ENTRIES)

    def names_of_now(self) -> None:
        """Take all names of now as safe, whether or not their folders were forced to the disk."""
        with self._lock:
            for place, _, _ in os.walk(self.folder):
                self._keep_names(Path(place))
            self._write()

    def close(self) -> None:
        """Let go of all files."""
        for file in self._held.values():
            os.close(file)
        self._held.clear()


def restore(shadow: Path, folder: Path, keep: Sequence[str] = ()) -> None:
    """Make a folder what a disk has after the power failed; what else is in it goes.

    - `keep`: patterns of names that stay as they are.
    """
    kept = json.loads((shadow / ENTRIES).read_text())
    folders = set(kept["folders"])
    spared = {path.name: path.read_bytes() for pattern in keep for path in folder.glob(pattern)}
    shutil.rmtree(folder, ignore_errors=True)

    def make(place: str, at: Path) -> None:
        at.mkdir(parents=True)
        for name, number in kept["entries"].get(place, {}).items():
            if number in folders:
                make(str(Path(place) / name), at / name)
                continue
            content = shadow / CONTENTS / str(number)
            (at / name).write_bytes(content.read_bytes() if content.exists() else b"")
            (at / name).chmod(0o600)

    make(".", folder)
    for name, content in spared.items():
        (folder / name).write_bytes(content)
