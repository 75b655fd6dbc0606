"""How the rows of a wave lie in memory while they are trained: one vector, parameter after parameter."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walktalk.learning.stacked import fused

COARSE = 2**21  # numbers of a parameter in all rows, on average
LINE = 16  # floats in a line of the cache, and in the widest register


@dataclass(frozen=True)
class Spread:
    """How numbers per row are spread over a vector that holds all rows' parameters, parameter after parameter.

    The vector ends with a few zeros that nobody reads, so that it is whole lines: torch's fused kernel rounds what is
    left over after the last whole register differently, and which parameters that are depends on the width of a wave.
    """

    rows: int
    sizes: tuple[int, ...]  # of the parameters

    @property
    def length(self) -> int:
        """Of the vector."""
        return -(-self.rows * sum(self.sizes) // LINE) * LINE

    def empty(self, like: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """A new vector, and its views [W, size], one for each parameter; all is still to be filled in."""
        vector = torch.empty(self.length, dtype=like.dtype, device=like.device)
        used = self.rows * sum(self.sizes)
        if used < self.length:
            vector[used:].zero_()
        return vector, self.views(vector)

    def views(self, vector: Tensor) -> tuple[Tensor, ...]:
        """The parameters of all rows, [W, size] each."""
        lengths = [self.rows * size for size in self.sizes]
        parts = vector.split([*lengths, len(vector) - sum(lengths)])
        return tuple(part.view(self.rows, size) for part, size in zip(parts, self.sizes, strict=False))

    @property
    def is_coarse(self) -> bool:
        """Whether parameters are so large that a kernel for each costs nothing."""
        return self.length > COARSE * len(self.sizes)

    def has_kernels(self, of: Tensor) -> bool:
        """Whether a kernel of our own does at once what would be a copy for each parameter."""
        dense = of.dim() == 1 or of.stride(1) == 1
        return of.is_cuda and of.dtype == torch.float32 and dense and fused.is_possible()

    def over(self, numbers: Tensor) -> Tensor | float:
        """One number per row [W] as one per element; plain where all rows have the same."""
        if numbers.device.type == "cpu":  # a GPU is not asked: that waits
            array = numbers.numpy()
            if bool((array == array[0]).all()):
                return float(array[0])
        vector, views = self.empty(numbers)
        if self.has_kernels(numbers):
            fused.spread_over(numbers.contiguous(), self.sizes, vector)
            return vector
        for view in views:
            view.copy_(numbers.view(-1, 1).expand_as(view))
        return vector


@dataclass(frozen=True)
class Chosen:
    """Rows of a matrix on a GPU by their numbers, read where they are."""

    matrix: Tensor
    numbers: Tensor

    def write(self, vector: Tensor, spread: Spread) -> None:
        """Parameters from a vector into these rows; of a number that is there twice the contents must be the same."""
        start = 0
        for view, size in zip(spread.views(vector), spread.sizes, strict=True):
            fused.scatter(view, self.matrix, self.numbers, start)
            start += size


def to_vector(rows: Tensor | Chosen, spread: Spread) -> Tensor:
    """Rows [W, P] as one vector, parameter after parameter: each parameter then is a dense [W, size].

    Rows are how models are stored and mixed; this is how they are trained. With gaps of a whole row between the
    weights of two models, a batched product takes up to three times as long.
    """
    if isinstance(rows, Chosen):
        vector, views = spread.empty(rows.matrix)
        start = 0
        for view, size in zip(views, spread.sizes, strict=True):
            fused.gather(rows.matrix, rows.numbers, view, start)
            start += size
        return vector
    vector, views = spread.empty(rows)
    if spread.has_kernels(rows):
        fused.spread_out(rows, spread.sizes, vector)
        return vector
    for view, part in zip(views, rows.split(spread.sizes, dim=1), strict=True):
        view.copy_(part)
    return vector


def to_rows(vector: Tensor, spread: Spread) -> Tensor:
    """Back to rows [W, P]."""
    return torch.cat(spread.views(vector), dim=1)


def zeros_or_vector(state: Tensor | Chosen | None, spread: Spread, like: Tensor) -> Tensor:
    """Numbers of a state as a vector; a fresh one is all zeros."""
    return like.new_zeros(spread.length) if state is None else to_vector(state, spread)
