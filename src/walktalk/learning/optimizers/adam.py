"""Adam and AdamW on rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walktalk.learning.optimizers.rows import OptimizerWave, RowOptimizer
from walktalk.learning.optimizers.spread import Spread, to_rows, zeros_or_vector


@dataclass(frozen=True)
class RowAdam(RowOptimizer):
    """torch.optim.Adam, or AdamW with decoupled weight decay. State of a row: mean, mean square, step count."""

    betas: tuple[float, float]
    eps: float
    weight_decay: float
    decoupled: bool

    def state_width(self, parameters: int) -> int:
        return 2 * parameters + 1

    def begin(self, lr: Tensor, state: Tensor | None, spread: Spread) -> OptimizerWave:
        return AdamWave(self, lr, state, spread)


class AdamWave(OptimizerWave):
    def __init__(self, settings: RowAdam, lr: Tensor, state: Tensor | None, spread: Spread) -> None:
        width = sum(spread.sizes)
        self.settings, self.rates, self.spread = settings, lr, spread
        self.lr = spread.over(lr)
        self.mean = zeros_or_vector(None if state is None else state[:, :width], spread, lr)
        self.square = zeros_or_vector(None if state is None else state[:, width : 2 * width], spread, lr)
        self.count = torch.zeros_like(lr) if state is None else state[:, 2 * width].clone()

    def step(self, weights: Tensor, gradients: Tensor) -> None:
        settings, (first, second) = self.settings, self.settings.betas
        self.count += 1
        if settings.weight_decay and settings.decoupled:
            weights.mul_(1 - self.lr * settings.weight_decay)
        elif settings.weight_decay:
            gradients.add_(weights, alpha=settings.weight_decay)
        self.mean.lerp_(gradients, 1 - first)
        self.square.mul_(second).addcmul_(gradients, gradients, value=1 - second)
        # In float64, as torch's own are: 1 − 0.999 has four digits left in float32.
        count = self.count.double()
        size = self.spread.over((self.rates / (1 - first**count)).float())
        correction = self.spread.over((1 - second**count).sqrt().float())
        denominator = self.square.sqrt().div_(correction).add_(settings.eps)
        weights.sub_(self.mean.div(denominator).mul_(size))

    def state(self) -> Tensor:
        return torch.cat(
            (to_rows(self.mean, self.spread), to_rows(self.square, self.spread), self.count.view(-1, 1)), 1
        )
