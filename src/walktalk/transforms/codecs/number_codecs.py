"""The codecs that specifications can name: numbers of fewer bits, the largest numbers, and parts of a model.

What is random in them comes from a counter: a hash of a key and a place, which needs no state and is the same on every
device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from walktalk.core.lazy import later
from walktalk.transforms.codecs.codec import CODECS, Bytes, Codec, approximated

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = later("torch")

BLOCK = 1024  # numbers that share a scale: 4 bytes more for each block, 0.4 % of an 8-bit message
_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number
_FIRST = -4658895280553007687  # 0xBF58476D1CE4E5B9
_SECOND = -7723592293110705685  # 0x94D049BB133111EB


class BrainFloat(Codec):
    """16-bit numbers with float32's exponent, rounded to nearest: half the bytes, three decimal digits."""

    name: ClassVar[str] = "bf16"

    def size(self, width: int) -> int:
        return 2 * width

    def encode(self, row: Tensor, key: int) -> Bytes:
        # A copy: one number out of many keeps the others' stride, and cannot be looked at as bytes.
        return row.to(torch.bfloat16).clone(memory_format=torch.contiguous_format).view(torch.uint8).numpy()

    def decode(self, data: Bytes, width: int) -> Tensor:
        return torch.from_numpy(data).view(torch.bfloat16).float()

    def approximate(self, rows: Tensor, keys: Tensor) -> Tensor:
        """What decoding gives after encoding, for many rows at once."""
        return rows.to(torch.bfloat16).float()


class Quantized(Codec):
    """Stochastic quantization to 2^(bits − 1) − 1 levels on either side of zero, with one scale for every block (QSGD).

    A block of numbers is divided by its largest absolute value and rounded up or down to one of the levels, with the
    probability that makes the expectation the number itself: E[Q(x)] = x. A block of nothing but zeros stays zero.
    """

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
        """What decoding gives after encoding, for many rows at once."""
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
        """The rows that whole numbers and scales stand for."""
        return (numbers * (scales / self.levels)).flatten(1)[:, :width]


class EightBits(Quantized):
    """Whole numbers of 8 bits: a quarter of the bytes."""

    name: ClassVar[str] = "int8"
    bits: ClassVar[int] = 8


class FourBits(Quantized):
    """Whole numbers of 4 bits: an eighth of the bytes."""

    name: ClassVar[str] = "int4"
    bits: ClassVar[int] = 4


def blocks(width: int) -> int:
    """How many blocks a row of so many numbers has."""
    return -(-width // BLOCK)


def in_blocks(rows: Tensor) -> Tensor:
    """Rows cut into blocks, the last filled with zeros."""
    filled: Tensor = torch.nn.functional.pad(rows, (0, -rows.shape[1] % BLOCK))
    return filled.view(len(rows), -1, BLOCK)


class TopK(Codec):
    """The numbers of largest absolute value and where they stand, 8 bytes each; all others are zero.

    Used with error feedback.
    """

    name: ClassVar[str] = "top_k"
    wants_feedback: ClassVar[bool] = True

    def __init__(self, share: float = 0.01) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"the share of the numbers that are sent is {share:g}; above 0, up to 1, is needed")
        self.share = share

    def count(self, width: int) -> int:
        """How many numbers are sent, at least one."""
        return max(1, round(self.share * width))

    def size(self, width: int) -> int:
        return 8 * self.count(width)

    def encode(self, row: Tensor, key: int) -> Bytes:
        places = self.places(row[None])[0]
        parts = (places.numpy().astype("<u4"), row[places].numpy().astype("<f4"))
        return np.concatenate([part.view(np.uint8) for part in parts])

    def decode(self, data: Bytes, width: int) -> Tensor:
        half = len(data) // 2
        places = torch.from_numpy(data[:half].view("<u4").astype(np.int64))
        if int(places.max()) >= width or bool((places[1:] <= places[:-1]).any()):
            raise ValueError("places are not in order, or beyond the end")
        row = torch.zeros(width)
        row[places] = torch.from_numpy(data[half:].view("<f4").astype(np.float32))
        return row

    def approximate(self, rows: Tensor, keys: Tensor) -> Tensor:
        """What decoding gives after encoding, for many rows at once."""
        places = self.places(rows)
        return torch.zeros_like(rows).scatter_(1, places, rows.gather(1, places))

    def places(self, rows: Tensor) -> Tensor:
        """Where the largest numbers of each row stand, in order; of equal ones the first."""
        largest = rows.abs().argsort(dim=1, descending=True, stable=True)[:, : self.count(rows.shape[1])]
        places: Tensor = largest.sort(1).values
        return places


class Part(Codec):
    """Every so many-th number as it is, and zeros in place of all others: "part(0, 2)" are the 1st, 3rd, 5th …

    For parts that go different ways, or at other times: whoever adds up all parts of a model has the model.
    """

    name: ClassVar[str] = "part"
    takes_statistics: ClassVar[bool] = True  # all parts of a model add up to it

    def __init__(self, number: float = 0, of: float = 2) -> None:
        if not (of >= 1 and of == int(of) and 0 <= number < of and number == int(number)):
            raise ValueError(f"there is no part {number:g} of {of:g}; parts are 0 to {of - 1:g}")
        self.places = slice(int(number), None, int(of))

    def followed_by(self, other: Codec) -> Codec:
        return CodedPart(self, other)

    def size(self, width: int) -> int:
        return 4 * len(range(width)[self.places])

    def encode(self, row: Tensor, key: int) -> Bytes:
        return row[self.places].numpy().astype("<f4").view(np.uint8)

    def decode(self, data: Bytes, width: int) -> Tensor:
        row = torch.zeros(width)
        row[self.places] = torch.from_numpy(data.view("<f4").astype(np.float32))
        return row

    def approximate(self, rows: Tensor, keys: Tensor) -> Tensor:
        """What decoding gives after encoding, for many rows at once."""
        seen = torch.zeros_like(rows)
        seen[:, self.places] = rows[:, self.places]
        return seen


class CodedPart(Codec):
    """A part whose numbers another codec encodes: "part(0, 4)+int8". Its part of the statistics goes as it is.

    Args:
        part: which numbers.
        inner: what encodes them.
    """

    name: ClassVar[str] = "coded_part"

    def __init__(self, part: Part, inner: Codec) -> None:
        if inner.takes_statistics:
            raise ValueError("a part of a part is a smaller part; name that one")
        self.part, self.inner = part, inner

    def for_statistics(self, parameters: int) -> Part:
        """The part with these places of the whole model, counted from its first statistic on."""
        step = self.part.places.step
        return Part((self.part.places.start - parameters) % step, step)

    def size(self, width: int) -> int:
        count = self._count(width)
        return self.inner.size(count) if count else 0

    def encode(self, row: Tensor, key: int) -> Bytes:
        numbers = row[self.part.places].contiguous()
        return self.inner.encode(numbers, key) if len(numbers) else np.zeros(0, np.uint8)

    def decode(self, data: Bytes, width: int) -> Tensor:
        row, count = torch.zeros(width), self._count(width)
        if count:
            row[self.part.places] = self.inner.decode(data, count)
        return row

    def approximate(self, rows: Tensor, keys: Tensor) -> Tensor:
        """What decoding gives after encoding, for many rows at once."""
        seen = torch.zeros_like(rows)
        if self._count(rows.shape[1]):
            seen[:, self.part.places] = approximated(self.inner, rows[:, self.part.places].contiguous(), keys)
        return seen

    def _count(self, width: int) -> int:
        """How many numbers of so many are in the part; there may be fewer numbers than parts."""
        return len(range(width)[self.part.places])


def hashed(keys: Tensor, counters: Tensor, bits: int = 31) -> Tensor:
    """31 random bits (or all 64) for every pair of key and counter (splitmix64); shapes are broadcast."""
    z = keys + (counters + 1) * _GOLDEN  # int64 arithmetic wraps around, as intended
    z = (z ^ _shift(z, 30)) * _FIRST
    z = (z ^ _shift(z, 27)) * _SECOND
    z = z ^ _shift(z, 31)
    return z if bits == 64 else _shift(z, 33)


def hashed_number(key: int, counter: int) -> int:
    """What `hashed` gives for one key and one counter, without torch."""
    z = (key + (counter + 1) * _GOLDEN) % 2**64
    z = (z ^ (z >> 30)) * _FIRST % 2**64
    z = (z ^ (z >> 27)) * _SECOND % 2**64
    return (z ^ (z >> 31)) >> 33


def uniform(keys: Tensor, count: int) -> Tensor:
    """So many float32 numbers in [0, 1) for each key."""
    draws = hashed(keys.view(-1, 1), torch.arange(count, device=keys.device).view(1, -1))
    return (draws >> 7).float() * 2.0**-24  # 24 bits: all that a float32 below 1 holds


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical shift to the right: torch's own keeps the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


for _codec in (BrainFloat, EightBits, FourBits, Part, TopK):
    CODECS.add(_codec.name, _codec)
