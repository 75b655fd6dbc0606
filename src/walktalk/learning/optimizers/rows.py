"""What an optimizer on rows can do."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from walktalk.learning.optimizers.spread import Spread


class RowOptimizer(ABC):
    """One step on all rows at once. A state of zeros is a fresh state."""

    @abstractmethod
    def state_width(self, parameters: int) -> int:
        """Floats of state for a row of that many parameters."""

    @abstractmethod
    def begin(self, lr: Tensor, state: Tensor | None, spread: Spread) -> OptimizerWave:
        """Get ready for some steps with these learning rates [W] and states [W, S]; None for fresh ones."""


class OptimizerWave(ABC):
    """An optimizer in the middle of a wave."""

    @abstractmethod
    def step(self, weights: Tensor, gradients: Tensor) -> None:
        """Change the weights (a vector, parameter after parameter) in place. The gradients may be overwritten."""

    @abstractmethod
    def state(self) -> Tensor:
        """The states now, [W, S]."""
