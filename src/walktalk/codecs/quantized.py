"""Whole numbers of 8 or 4 bits with one scale for every block, rounded at random so that the mean is exact (QSGD).

A block of numbers is divided by its largest absolute value and rounded up or down to one of the levels, with the
probability that makes the expectation the number itself: E[Q(x)] = x. A block of nothing but zeros stays zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from walktalk.codecs.codec import Bytes, Codec
from walktalk.codecs.random_bits import uniform
from walktalk.lazy import later

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = later("torch")

BLOCK = 1024  # numbers that share a scale: 4 bytes more for each block, 0.4 % of an 8-bit message


class Quantized(Codec):
    """Stochastic quantization to 2^(bits − 1) − 1 levels on either side of zero."""

    bits: ClassVar[int]

    @property
    def levels(self) -> int:
        """The largest whole number."""
        return int(2 ** (self.bits - 1) - 1)

    def size(self, width: int) -> int:
        return 4 * blocks(width) + -(-width * self.bits // 8)

    def encode(self, row: Tensor, key: int) -> Bytes:
        numbers, scales = self.rounded(row[None], torch.tensor([key]))
        whole = (numbers.flatten()[: len(row)] + self.levels).to(torch.uint8).numpy()
        if self.bits == 4:
            pairs = np.pad(whole, (0, len(whole) % 2)).reshape(-1, 2)
            whole = pairs[:, 0] | (pairs[:, 1] << 4)
        return np.concatenate((scales.flatten().numpy().astype("<f4").view(np.uint8), whole))

    def decode(self, data: Bytes, width: int) -> Tensor:
        head = 4 * blocks(width)
        scales = torch.from_numpy(data[:head].view("<f4").astype(np.float32))
        if not bool(torch.isfinite(scales).all()):
            raise ValueError("a scale is not a number")
        whole = data[head:]
        if self.bits == 4:
            whole = np.stack((whole & 15, whole >> 4), axis=1).reshape(-1)[:width]
        if len(whole) and int(whole.max()) > 2 * self.levels:
            raise ValueError("a number is larger than its block's scale")
        numbers = torch.from_numpy(whole.astype(np.float32)) - self.levels
        return self.restored(in_blocks(numbers[None]), scales[None, :, None], width)[0]

    def approximate(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Many rows at once."""
        numbers, scales = self.rounded(rows, keys)
        return self.restored(numbers, scales, rows.shape[1])

    def rounded(self, rows: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Whole numbers, [rows, blocks, numbers], and the scales, [rows, blocks, 1]."""
        cut = in_blocks(rows)
        scales = cut.abs().amax(2, keepdim=True)
        shares = cut / torch.where(scales > 0, scales, torch.ones_like(scales)) * self.levels
        chance = in_blocks(uniform(keys.to(rows.device), rows.shape[1]))
        return (shares + chance).floor().clamp(-self.levels, self.levels), scales

    def restored(self, numbers: Tensor, scales: Tensor, width: int) -> Tensor:
        """Rows again."""
        return (numbers * (scales / self.levels)).flatten(1)[:, :width]


class EightBits(Quantized):
    """A quarter of the bytes."""

    name: ClassVar[str] = "int8"
    bits: ClassVar[int] = 8


class FourBits(Quantized):
    """An eighth of the bytes."""

    name: ClassVar[str] = "int4"
    bits: ClassVar[int] = 4


def blocks(width: int) -> int:
    """Blocks of a row."""
    return -(-width // BLOCK)


def in_blocks(rows: Tensor) -> Tensor:
    """Rows cut into blocks, the last filled with zeros."""
    filled: Tensor = torch.nn.functional.pad(rows, (0, -rows.shape[1] % BLOCK))
    return filled.view(len(rows), -1, BLOCK)
