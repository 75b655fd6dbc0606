"""How numbers are computed on the device: their precision, their layout in memory, and graphs of kernels."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import torch

from walktalk.core.errors import ModelError, UnavailableError
from walktalk.core.settings import misfit

Precision: TypeAlias = Literal["fp32", "tf32", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16")


@contextmanager
def any_alignment(device: torch.device) -> Iterator[None]:
    """A context for evaluating torch's own encoder layers with weights that lie anywhere in a row.

    Their fast path on a GPU reads weights by 16 bytes and ends in "misaligned address" where they lie otherwise.
    """
    fast = device.type == "cuda" and torch.backends.mha.get_fastpath_enabled()
    try:
        if fast:
            torch.backends.mha.set_fastpath_enabled(False)
        yield
    finally:
        if fast:
            torch.backends.mha.set_fastpath_enabled(True)


@dataclass(frozen=True)
class Arithmetic:
    """How numbers are computed: in which precision, with which kernels and in which layout.

    fp32: as on a CPU. tf32: products with 10 bits of mantissa (GPU only). bf16: activations in 16 bits.

    Weights, gradients, optimizer state and losses are float32 in all three; they are what is mixed and sent.
    """

    precision: Precision = "fp32"
    channels_last: bool | None = None  # of convolutions; None: on a GPU in 16 bits, where it pays
    graphs: bool | None = None  # CUDA graphs of whole trainings; None: on a GPU
    fused: bool | None = None  # kernels of our own for small convolutional models; None: on a GPU in 16 bits
    deterministic: bool = True  # only kernels that give the same bytes every time

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise misfit("training.precision", self.precision, ", ".join(PRECISIONS), ModelError)

    def uses_channels_last(self, device: torch.device) -> bool:
        if self.channels_last is not None:
            return self.channels_last
        return device.type == "cuda" and self.precision == "bf16"

    def uses_fused(self, device: torch.device) -> bool:
        return device.type == "cuda" and self.precision == "bf16" and self.fused is not False

    def uses_graphs(self, device: torch.device) -> bool:
        return device.type == "cuda" and self.graphs is not False

    def forward(self, device: torch.device) -> AbstractContextManager[object]:
        """A context for a forward pass.

        Casts are not cached: a cached one would be missing in the replay of a graph.
        """
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)

    @contextmanager
    def products(self, device: torch.device) -> Iterator[None]:
        """A context for all work on a device: whether products may be tf32.

        (torch's default: in convolutions yes, else no.)
        """
        if device.type != "cuda":
            yield
            return
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
        matmul.allow_tf32 = cudnn.allow_tf32 = self.precision != "fp32"
        cudnn.deterministic = self.deterministic
        try:
            yield
        finally:
            matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before


# -- How much memory there is for models, what this process keeps of it, and what to do where it was not enough -------

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
