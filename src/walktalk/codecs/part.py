"""A part of the numbers as they are, and zeros in place of all others: parts that go different ways, or at other times.

Whoever adds up all parts of a model has the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from walktalk.codecs.codec import Bytes, Codec, approximated
from walktalk.lazy import later

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = later("torch")


class Part(Codec):
    """Every so many-th number, beginning with one of the first: "part(0, 2)" are the 1st, 3rd, 5th …"""

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
        """Many rows at once."""
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
        """The same places of the whole model, counted from its first statistic on."""
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
        """Many rows at once."""
        seen = torch.zeros_like(rows)
        if self._count(rows.shape[1]):
            seen[:, self.part.places] = approximated(self.inner, rows[:, self.part.places].contiguous(), keys)
        return seen

    def _count(self, width: int) -> int:
        """How many numbers of so many are in the part; there may be fewer numbers than parts."""
        return len(range(width)[self.part.places])
