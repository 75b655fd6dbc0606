"""How numbers are computed on the device: their precision, their layout in memory, and graphs of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from walktalk.core.errors import ModelError
from walktalk.core.settings import misfit

Precision: TypeAlias = Literal["fp32", "tf32", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16")


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
