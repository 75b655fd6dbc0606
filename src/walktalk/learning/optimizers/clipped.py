"""Gradient clipping: a row's gradient is shortened to a greatest norm before its optimizer sees it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walktalk.errors import ModelError
from walktalk.learning.optimizers.rows import OptimizerWave, RowOptimizer
from walktalk.learning.optimizers.spread import Spread

TINY = 1e-6  # added to a norm, as torch.nn.utils.clip_grad_norm_ does


@dataclass(frozen=True)
class Clipped(RowOptimizer):
    """Another optimizer, with every row's gradient at most this long; as torch.nn.utils.clip_grad_norm_."""

    inner: RowOptimizer
    norm: float  # Euclidean, over all parameters of a row

    def __post_init__(self) -> None:
        if not self.norm > 0:
            raise ModelError(f"training.clip_norm: {self.norm} is not possible; a number above 0 is needed")

    def state_width(self, parameters: int) -> int:
        return self.inner.state_width(parameters)

    def begin(self, lr: Tensor, state: Tensor | None, spread: Spread) -> OptimizerWave:
        return ClippedWave(self.inner.begin(lr, state, spread), self.norm, spread)

    def step_alone(self, weights: Tensor, gradients: Tensor, state: Tensor, lr: float | Tensor) -> None:
        gradients.mul_(factors(gradients.square().sum(dtype=torch.float64), self.norm))
        self.inner.step_alone(weights, gradients, state, lr)


class ClippedWave(OptimizerWave):
    """Rows lie parameter after parameter, so a row's norm is put together from its parts."""

    def __init__(self, inner: OptimizerWave, norm: float, spread: Spread) -> None:
        self.inner, self.norm, self.spread = inner, norm, spread

    def step(self, weights: Tensor, gradients: Tensor) -> None:
        views = self.spread.views(gradients)
        squares = torch.stack([view.square().sum(1, dtype=torch.float64) for view in views]).sum(0)
        factor = factors(squares, self.norm).unsqueeze(1)
        for view in views:
            view.mul_(factor)
        self.inner.step(weights, gradients)

    def state(self) -> Tensor:
        return self.inner.state()


def factors(squares: Tensor, norm: float) -> Tensor:
    """By how much gradients with these squared norms are shortened; 1 for short ones. Nothing waits for a device.

    The squares are summed in 64 bits: in 32, a row's last bits would depend on how its wave was cut.
    """
    return (norm / (squares.sqrt() + TINY)).clamp(max=1.0).float()
