"""All models of a study, as rows of one matrix on the device.

Which row holds which value is decided ahead (`waves`), so the matrix grows at most once before a stretch of work, and
the most it will need is known before the work starts.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import torch
from torch import Tensor

WIDEST_BAG = 2**21  # numbers in a row up to which torch's embedding bag pays (`combined`)


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

    def look_at(self, rows: Tensor, numbers: Sequence[int]) -> Tensor:
        """The same for who changes nothing and is done before anything is written: a single row is not copied.

        `numbers` are the rows once more, where they can be read without waiting for the device.
        """
        return self.data.narrow(0, numbers[0], 1) if len(numbers) == 1 else self.read(rows)

    def write(self, rows: Tensor, content: Tensor) -> None:
        if self.data.device.type == "cpu":  # NumPy copies whole rows; torch takes three times as long
            self.data.numpy()[rows.numpy()] = content.numpy()
        else:
            self.data.index_copy_(0, rows, content)

    def combined(self, rows: Tensor, weights: Tensor, starts: Tensor) -> Tensor:
        """Σ_k weights[k] · row rows[k] over each piece of the list; `starts` says where the pieces begin."""
        return torch.embedding_bag(self.data, rows, starts, mode=0, per_sample_weights=weights)[0]

    def combined_from(self, column: int, rows: Tensor, weights: Tensor, starts: Tensor) -> Tensor:
        """The same for the columns from there on, which are few."""
        chosen = self.data[:, column:].index_select(0, rows)
        places = torch.arange(len(rows), device=rows.device)
        return torch.embedding_bag(chosen, places, starts, mode=0, per_sample_weights=weights)[0]

    def combine_one_by_one(
        self, outs: Sequence[int], rows: Sequence[int], weights: Sequence[float], starts: Sequence[int]
    ) -> None:
        """`combined` for wide rows, written to rows `outs`: in as few passes over the memory as there are."""
        in_place = not set(outs) & set(rows)  # else all are made before any is written
        made = [self.data[out] if in_place else torch.empty_like(self.data[out]) for out in outs]
        for total, start, end in zip(made, starts, [*starts[1:], len(rows)], strict=True):
            if start == end:
                total.zero_()
                continue
            torch.mul(self.data[rows[start]], weights[start], out=total)
            for source, factor in zip(rows[start + 1 : end], weights[start + 1 : end], strict=True):
                total.add_(self.data[source], alpha=factor)
        if not in_place:
            for out, total in zip(outs, made, strict=True):
                self.data[out].copy_(total)
