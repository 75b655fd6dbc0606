"""The k numbers of largest absolute value, and where they stand; all others are zero. Used with error feedback."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from walktalk.codecs.codec import Bytes, Codec
from walktalk.lazy import later

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = later("torch")


class TopK(Codec):
    """A share of the numbers, 8 bytes for each that is sent."""

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
        """Many rows at once."""
        places = self.places(rows)
        return torch.zeros_like(rows).scatter_(1, places, rows.gather(1, places))

    def places(self, rows: Tensor) -> Tensor:
        """Where the largest numbers of each row stand, in order; of equal ones the first."""
        largest = rows.abs().argsort(dim=1, descending=True, stable=True)[:, : self.count(rows.shape[1])]
        places: Tensor = largest.sort(1).values
        return places
