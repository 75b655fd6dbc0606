"""Every other element-wise optimizer, by torch.optim itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from walktalk.learning.optimizers.rows import OptimizerWave, RowOptimizer
from walktalk.learning.optimizers.spread import Spread, to_rows, to_vector


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
