"""16-bit numbers with float32's exponent: half the bytes, three decimal digits."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from walktalk.codecs.codec import Bytes, Codec
from walktalk.lazy import later

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = later("torch")


class BrainFloat(Codec):
    """bf16, rounded to nearest."""

    name: ClassVar[str] = "bf16"

    def size(self, width: int) -> int:
        return 2 * width

    def encode(self, row: Tensor, key: int) -> Bytes:
        # A copy: one number out of many keeps the others' stride, and cannot be looked at as bytes.
        return row.to(torch.bfloat16).clone(memory_format=torch.contiguous_format).view(torch.uint8).numpy()

    def decode(self, data: Bytes, width: int) -> Tensor:
        return torch.from_numpy(data).view(torch.bfloat16).float()

    def approximate(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Many rows at once."""
        return rows.to(torch.bfloat16).float()
