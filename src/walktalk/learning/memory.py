"""How much memory there is for models, what this process keeps of it, and what to do where it was not enough."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

from walktalk.core.errors import UnavailableError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
KEPT = 2**29  # bytes at the end of the heap that stay with the process
PIECES = 2**25  # bytes from which on a piece is got from the system by itself; glibc allows no more


def machine_memory() -> float:
    """How many bytes this process may still take of the machine and its container.

    Infinity if the system does not tell.
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    free = {line.split(":")[0]: 1024.0 * int(line.split()[1]) for line in lines}
    return min(free.get("MemAvailable", float("inf")), _container_limit())


def _container_limit() -> float:
    """How many bytes a container leaves this process."""
    folder = Path("/sys/fs/cgroup")
    try:
        return float((folder / "memory.max").read_text()) - float((folder / "memory.current").read_text())
    except (OSError, ValueError):
        return float("inf")


@cache
def keep_freed_memory() -> None:
    """Lets memory that a training step frees stay with this process, since the next step asks for it again.

    By itself glibc gives it back, and every four kilobytes that are got anew are a page fault: of a ResNet-20's step
    those were 7 %. Bounded by `KEPT`; other systems are left as they are.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # musl has no such thing
            system = ctypes.CDLL(None)
            # Both: the first by itself would leave the second where it is, at 128 kB in a process that is young.
            system.mallopt(M_TRIM_THRESHOLD, KEPT)
            system.mallopt(M_MMAP_THRESHOLD, PIECES)


CPU_BYTES = 2**31  # of a wave's activations; more only leaves the caches
GPU_SHARE = 0.4  # of a GPU's memory: the study's models and the data need the rest


def activation_allowance(device: torch.device) -> float:
    """How many bytes the activations of a wave may take on a device."""
    if device.type != "cuda":
        return float(CPU_BYTES)
    return GPU_SHARE * torch.cuda.get_device_properties(device).total_memory


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch could not get memory: on a GPU it has an exception for that, on a CPU only words."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def fewer_rows(rows: int, task: str, device: torch.device, error: RuntimeError) -> int:
    """Halves the number of rows at once after a lack of memory; an `UnavailableError` where it was one row."""
    if rows == 1:
        raise UnavailableError(
            f"{task}: not even one model fits into the memory that is free on {device} "
            f"({' '.join(str(error).split())}); take a smaller batch_size or model, or end what else uses it"
        ) from error
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return (rows + 1) // 2
