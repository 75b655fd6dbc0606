"""All models of a study, as rows of one matrix on the device.

Which row holds which value is decided ahead (`waves`), so the matrix grows at most once before a stretch of work, and
the most it will need is known before the work starts.
"""

from __future__ import annotations

import heapq

import torch
from torch import Tensor

WIDEST_BAG = 2**21  # numbers in a row up to which torch's embedding bag pays: its kernel is made for one width


class RowSpace:
    """Hands out row numbers; the lowest free one first, so that the matrix stays dense."""

    def __init__(self) -> None:
        self.size = 0  # rows that were ever in use at once
        self._free: list[int] = []

    def take(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self.size += 1
        return self.size - 1

    def give_back(self, row: int) -> None:
        heapq.heappush(self._free, row)


class Matrix:
    """The numbers themselves."""

    def __init__(self, width: int, device: torch.device) -> None:
        self.data = torch.zeros((0, width), device=device)

    def reserve(self, rows: int) -> None:
        """Make room for that many rows, keeping what is there."""
        have, width = self.data.shape
        if rows > have:
            # More than asked, so that many small steps do not copy everything each time; no row is read before it is
            # written, so what is not used takes no memory on a CPU, and there may be more of it.
            spare = have // 2 if self.data.device.type == "cpu" else have // 8
            grown = torch.empty((max(rows, have + spare), width), device=self.data.device, dtype=self.data.dtype)
            grown[:have] = self.data
            self.data = grown

    def read(self, rows: Tensor) -> Tensor:
        return self.data.index_select(0, rows)

    def look_at(self, rows: Tensor) -> Tensor:
        """The same for who changes nothing and is done before anything is written: a single row is not copied."""
        if len(rows) == 1 and self.data.device.type == "cpu":
            return self.data.narrow(0, int(rows), 1)
        return self.read(rows)

    def write(self, rows: Tensor, content: Tensor) -> None:
        if self.data.device.type == "cpu":  # NumPy copies whole rows; torch takes three times as long
            self.data.numpy()[rows.numpy()] = content.numpy()
        else:
            self.data.index_copy_(0, rows, content)

    def combined(self, rows: Tensor, weights: Tensor, starts: Tensor) -> Tensor:
        """Σ_k weights[k] · row rows[k] over each piece of the list; `starts` says where the pieces begin."""
        if self.data.shape[1] <= WIDEST_BAG:
            return torch.embedding_bag(self.data, rows, starts, mode=0, per_sample_weights=weights)[0]
        bounds = [*starts.tolist(), len(rows)]
        sources, factors = rows.tolist(), weights.tolist()
        result = torch.zeros((len(starts), self.data.shape[1]), device=self.data.device, dtype=self.data.dtype)
        for total, start, end in zip(result, bounds[:-1], bounds[1:], strict=True):
            for source, factor in zip(sources[start:end], factors[start:end], strict=True):
                total.add_(self.data[source], alpha=factor)
        return result
