"""How much memory this process may still take, and what it keeps of what it has."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
KEPT = 2**29  # bytes at the end of the heap that stay with the process
PIECES = 2**25  # bytes from which on a piece is got from the system by itself; glibc allows no more


def machine_memory() -> float:
    """Bytes, of the machine and of the container; infinity where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    free = {line.split(":")[0]: 1024.0 * int(line.split()[1]) for line in lines}
    return min(free.get("MemAvailable", float("inf")), _container_limit())


def _container_limit() -> float:
    """What a container leaves this process."""
    folder = Path("/sys/fs/cgroup")
    try:
        return float((folder / "memory.max").read_text()) - float((folder / "memory.current").read_text())
    except (OSError, ValueError):
        return float("inf")


@cache
def keep_freed_memory() -> None:
    """What a training step frees stays with this process, since the next step asks for it again.

    By itself glibc gives it back, and every four kilobytes that are got anew are a page fault: of a ResNet-20's step
    those were 7 %. Bounded by `KEPT`; other systems are left as they are.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # musl has no such thing
            system = ctypes.CDLL(None)
            # Both: the first by itself would leave the second where it is, at 128 kB in a process that is young.
            system.mallopt(M_TRIM_THRESHOLD, KEPT)
            system.mallopt(M_MMAP_THRESHOLD, PIECES)
