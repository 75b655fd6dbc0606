"""All other element-wise optimizers by torch.optim itself, clipping of gradients, and the choice among them all."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from walktalk.core.errors import ModelError
from walktalk.learning.optimizers.adam import RowAdam
from walktalk.learning.optimizers.rows import OptimizerWave, RowOptimizer, Spread, to_rows, to_vector
from walktalk.learning.optimizers.sgd import RowSGD
from walktalk.learning.optimizers.spec import OptimizerSpec, element_wise


class RowTorch(RowOptimizer):
    """Any element-wise optimizer of torch.optim, by torch.optim itself: one parameter group a row.

    State: a flag that says whether the row has one at all (a fresh one need not be zeros), then its entries in the
    order of their names.
    """

    def __init__(self, kind: type[torch.optim.Optimizer], arguments: dict[str, Any]) -> None:
        self.kind = kind
        self.arguments = arguments
        self.entries = self._entries()

    def _entries(self) -> list[tuple[str, bool]]:
        """Names of the state's entries, and whether each is one number (or as wide as the row)."""
        probe = torch.zeros(3, requires_grad=True)
        optimizer = self.make([probe], [0.1])
        probe.grad = torch.ones(3)
        optimizer.step()
        state = optimizer.state[probe]
        return [(name, state[name].numel() == 1) for name in sorted(state) if isinstance(state[name], Tensor)]

    def make(self, rows: list[Tensor], lrs: list[float]) -> torch.optim.Optimizer:
        groups = [{"params": [row], "lr": lr} for row, lr in zip(rows, lrs, strict=True)]
        return self.kind(groups, **self.arguments)

    def state_width(self, parameters: int) -> int:
        return 1 + sum(1 if single else parameters for _, single in self.entries)

    def begin(self, lr: Tensor, state: Tensor | None, spread: Spread) -> OptimizerWave:
        if state is None:
            state = lr.new_zeros(spread.rows, self.state_width(sum(spread.sizes)))
        return TorchWave(self, lr, state, spread)


class TorchWave(OptimizerWave):
    def __init__(self, settings: RowTorch, lr: Tensor, state: Tensor, spread: Spread) -> None:
        self.settings, self.spread = settings, spread
        width = sum(spread.sizes)
        self.parameters = [torch.zeros(width, device=state.device, requires_grad=True) for _ in range(spread.rows)]
        self.optimizer = settings.make(self.parameters, lr.tolist())
        for parameter, packed in zip(self.parameters, state, strict=True):
            if packed[0]:
                self.optimizer.state[parameter] = self._unpack(packed[1:], width)

    def step(self, weights: Tensor, gradients: Tensor) -> None:
        for parameter, row, gradient in zip(
            self.parameters, to_rows(weights, self.spread), to_rows(gradients, self.spread), strict=True
        ):
            parameter.data, parameter.grad = row.clone(), gradient.clone()
        self.optimizer.step()
        weights.copy_(to_vector(torch.stack([p.detach() for p in self.parameters]), self.spread))

    def state(self) -> Tensor:
        return torch.stack([self._pack(self.optimizer.state[parameter]) for parameter in self.parameters])

    def _unpack(self, packed: Tensor, width: int) -> dict[str, Tensor]:
        entries, at = {}, 0
        for name, single in self.settings.entries:
            entries[name] = packed[at].clone() if single else packed[at : at + width].clone()
            at += 1 if single else width
        return entries

    def _pack(self, entries: dict[str, Tensor]) -> Tensor:
        device = self.parameters[0].device  # torch keeps counts of steps on the CPU
        parts = [entries[name].to(device).float().reshape(-1) for name, _ in self.settings.entries]
        return torch.cat([torch.ones(1, device=device), *parts])


# Gradient clipping: a row's gradient is shortened to a greatest norm before its optimizer sees it.

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
    """Factors by which gradients with these squared norms are shortened; 1 for short ones. Nothing waits for a device.

    The squares are summed in 64 bits: in 32, a row's last bits would depend on how its wave was cut.
    """
    return (norm / (squares.sqrt() + TINY)).clamp(max=1.0).float()


def row_optimizer(spec: OptimizerSpec, clip_norm: float | None = None) -> RowOptimizer:
    """Makes the optimizer for whole matrices of rows.

    clip_norm: a gradient that is longer is shortened to this norm; None: none is.
    """
    plain = _without_clipping(spec)
    return plain if clip_norm is None else Clipped(plain, clip_norm)


def _without_clipping(spec: OptimizerSpec) -> RowOptimizer:
    if spec.name == "sgd" and not spec.extra:
        return RowSGD(spec.momentum, spec.nesterov, spec.weight_decay)
    if spec.name in ("adam", "adamw") and not spec.extra:
        return RowAdam(spec.betas or (0.9, 0.999), spec.eps or 1e-8, spec.weight_decay, spec.name == "adamw")
    kind = element_wise()[spec.name]
    takes = inspect.signature(kind).parameters
    given = {name: getattr(spec, name) for name in ("weight_decay", "momentum", "nesterov", "betas", "eps")}
    arguments = {name: value for name, value in given.items() if name in takes and value}
    return RowTorch(kind, {**arguments, **spec.extra})
