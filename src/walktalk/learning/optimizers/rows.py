"""How parameters of many rows lie in one vector, and what an optimizer on rows can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from walktalk.learning import kernels

# How the rows of a wave lie in memory while they are trained: one vector, parameter after parameter.

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
        """How long the vector is."""
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
        return of.is_cuda and of.dtype == torch.float32 and dense and kernels.is_possible()

    def over(self, numbers: Tensor) -> Tensor | float:
        """One number per row [W] as one per element; plain where all rows have the same."""
        if numbers.device.type == "cpu":  # a GPU is not asked: that waits
            array = numbers.numpy()
            if bool((array == array[0]).all()):
                return float(array[0])
        vector, views = self.empty(numbers)
        if self.has_kernels(numbers):
            kernels.spread_over(numbers.contiguous(), self.sizes, vector)
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
            kernels.scatter(view, self.matrix, self.numbers, start)
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
            kernels.gather(rows.matrix, rows.numbers, view, start)
            start += size
        return vector
    vector, views = spread.empty(rows)
    if spread.has_kernels(rows):
        kernels.spread_out(rows, spread.sizes, vector)
        return vector
    for view, part in zip(views, rows.split(spread.sizes, dim=1), strict=True):
        view.copy_(part)
    return vector


def to_rows(vector: Tensor, spread: Spread) -> Tensor:
    """Turns such a vector back into rows [W, P]."""
    return torch.cat(spread.views(vector), dim=1)


def zeros_or_vector(state: Tensor | Chosen | None, spread: Spread, like: Tensor) -> Tensor:
    """Numbers of a state as a vector; a fresh one is all zeros."""
    return like.new_zeros(spread.length) if state is None else to_vector(state, spread)


class RowOptimizer(ABC):
    """An optimizer that makes one step on all rows at once. A state of zeros is a fresh state."""

    @abstractmethod
    def state_width(self, parameters: int) -> int:
        """Floats of state for a row of that many parameters."""

    @abstractmethod
    def begin(self, lr: Tensor, state: Tensor | None, spread: Spread) -> OptimizerWave:
        """Get ready for some steps with these learning rates [W] and states [W, S]; None for fresh ones."""

    def step_alone(self, weights: Tensor, gradients: Tensor, state: Tensor, lr: float | Tensor) -> None:
        """One step of a single row: its weights [P] and its state [S] are changed in place.

        For large models, where memory that is got anew for every step takes as long as the step itself. The rate is a
        number on a CPU; on a GPU it is one that lies there, [1], and nothing here waits for it.
        """
        spread = Spread(1, (len(weights),))
        rates = lr if isinstance(lr, Tensor) else torch.tensor([lr])
        wave = self.begin(rates, state.view(1, -1), spread)
        ahead = to_vector(weights.view(1, -1), spread)
        wave.step(ahead, to_vector(gradients.view(1, -1), spread))
        weights.copy_(to_rows(ahead, spread)[0])
        state.copy_(wave.state()[0])


class OptimizerWave(ABC):
    """An optimizer in the middle of a wave."""

    @abstractmethod
    def step(self, weights: Tensor, gradients: Tensor) -> None:
        """Change the weights (a vector, parameter after parameter) in place. The gradients may be overwritten."""

    @abstractmethod
    def state(self) -> Tensor:
        """The states of all rows now, [W, S]."""
