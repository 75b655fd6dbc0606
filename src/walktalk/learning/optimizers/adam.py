"""Adam and AdamW on rows of a matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from walktalk.learning.optimizers.rows import LINE, OptimizerWave, RowOptimizer, Spread, to_rows, zeros_or_vector


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

    def step_alone(self, weights: Tensor, gradients: Tensor, state: Tensor, lr: float | Tensor) -> None:
        """A step in one pass over the memory: a tenth of the time.

        Other rows have no part in it, so it may round its way.
        """
        width = len(weights)
        mean, square, count = state[:width], state[width : 2 * width], state[2 * width]
        step = fused(self.decoupled, weights.device.type)
        if step is None:
            super().step_alone(weights, gradients, state, lr)
            return
        count += 1
        step(
            [weights],
            [gradients],
            [mean],
            [square],
            [],
            [count],
            lr=number(lr),
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.weight_decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )


def number(lr: float | Tensor) -> float | Tensor:
    """A learning rate as torch's kernels want it: plain, or without dimensions."""
    return lr.view(()) if isinstance(lr, Tensor) else lr


@cache
def fused(decoupled: bool, device: str) -> Callable[..., None] | None:
    """Finds torch's kernel for the whole step.

    None where this torch has none for that device, or it wants something else.
    """
    kernel: Callable[..., None] | None = getattr(torch, "_fused_adamw_" if decoupled else "_fused_adam_", None)
    numbers = torch.linspace(0.1, 1.0, 4 * LINE, device=device).view(4, LINE)
    try:
        if kernel is not None:
            one = torch.ones((), device=device)
            kernel(
                *([row] for row in numbers),
                [],
                [one],
                lr=0.1 if device == "cpu" else 0.1 * one,
                beta1=0.9,
                beta2=0.99,
                weight_decay=0.1,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )
    except torch.OutOfMemoryError:
        raise  # says nothing about the kernel
    except (RuntimeError, TypeError):
        return None
    return kernel


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
