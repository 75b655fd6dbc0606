"""What an optimizer on rows can do."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from walktalk.learning.optimizers.spread import Spread, to_rows, to_vector


class RowOptimizer(ABC):
    """One step on all rows at once. A state of zeros is a fresh state."""

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
        """The states now, [W, S]."""
