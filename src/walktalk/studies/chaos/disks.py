"""A disk that is full.

As root the node's folder is a small file system of its own, in memory, and is filled. Else the system lets the node's
process make no file longer (`RLIMIT_FSIZE`), which it sees as another error at the same calls.
"""

from __future__ import annotations

import resource
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from walktalk.studies.chaos.blows import is_root

SIZE = "24m"  # a storm's trace is 2 to 4 MB
FILLER = "filler"


class Disk:
    """One node's. Use as a context manager, around the life of all processes and the reading of its folder."""

    def __init__(self, folder: Path) -> None:
        """folder: the node's."""
        self.folder, self.own = folder, is_root()
        self._limited: int | None = None  # a process whose files may not grow
        self.full = False

    def __enter__(self) -> Disk:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.own:
            mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "walktalk-chaos", str(self.folder)]
            self.own = subprocess.run(mount, capture_output=True, check=False).returncode == 0  # containers may not
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.free()
        if self.own:
            subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)

    def fill(self, process: int | None) -> None:
        """Nothing more can be written by this process."""
        self.full = True
        if not self.own and process is not None:
            self._limited = process
            _limit(process, 1)
            return
        with (self.folder / FILLER).open("ab", buffering=0) as file, suppress(OSError):
            for block in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while file.write(bytes(block)):
                        pass

    def free(self) -> None:
        """There is room again."""
        self.full = False
        if self._limited is not None:
            with suppress(OSError, ValueError):  # it may be dead by now
                _limit(self._limited, resource.RLIM_INFINITY)
            self._limited = None
        (self.folder / FILLER).unlink(missing_ok=True)


def _limit(process: int, size: int) -> None:
    _, most = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size if most == resource.RLIM_INFINITY else most, most))
