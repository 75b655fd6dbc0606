"""Optimizers on the rows of a matrix: every row its own learning rate, its own state, its own step count.

SGD, Adam and AdamW are written out for whole matrices, with torch.optim's arithmetic. Every other element-wise
optimizer of torch.optim runs through torch.optim itself, row by row: exact, but slower.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from walktalk.errors import ModelError

NOT_ELEMENT_WISE = {"LBFGS", "Adafactor", "Muon", "SparseAdam", "Optimizer"}


def _classes() -> dict[str, type[torch.optim.Optimizer]]:
    """torch.optim's element-wise optimizers, by their names in small letters."""
    found = {}
    for name, thing in vars(torch.optim).items():
        if inspect.isclass(thing) and issubclass(thing, torch.optim.Optimizer) and name not in NOT_ELEMENT_WISE:
            found[name.lower()] = thing
    return found


@dataclass(frozen=True)
class OptimizerSpec:
    """An optimizer by torch.optim's name, with its settings."""

    name: str = "sgd"
    lr: float = 0.05
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    betas: tuple[float, float] | None = None  # None: torch.optim's own default
    eps: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # further arguments of the torch.optim class

    def __post_init__(self) -> None:
        if self.name not in _classes():
            raise ModelError(
                f"optimizer: {self.name!r} is unknown or not element-wise; allowed: {', '.join(sorted(_classes()))}"
            )
        for key, value in (("weight_decay", self.weight_decay), ("momentum", self.momentum)):
            if value < 0:
                raise ModelError(f"optimizer.{key}: {value} is not possible; 0 or more is needed")
        if not self.lr > 0:
            raise ModelError(f"optimizer.lr: {self.lr} is not possible; a number above 0 is needed")
        if self.eps is not None and not self.eps > 0:
            raise ModelError(f"optimizer.eps: {self.eps} is not possible; a number above 0 is needed")
        if self.betas is not None and (len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas)):
            raise ModelError(f"optimizer.betas: {self.betas} is not possible; two numbers from 0 to below 1 are needed")
        if self.nesterov and not self.momentum:
            raise ModelError("optimizer.nesterov: true needs a momentum above 0")


class RowOptimizer(ABC):
    """One step on all rows at once. A state of zeros is a fresh state."""

    @abstractmethod
    def state_width(self, parameters: int) -> int:
        """Floats of state for a row of that many parameters."""

    @abstractmethod
    def step(self, rows: Tensor, gradients: Tensor, state: Tensor, lr: Tensor) -> None:
        """Change rows [W, P] and state [W, S] in place; lr is [W, 1]. The gradients may be overwritten."""


@dataclass(frozen=True)
class RowSGD(RowOptimizer):
    """torch.optim.SGD with dampening 0."""

    momentum: float
    nesterov: bool
    weight_decay: float

    def state_width(self, parameters: int) -> int:
        return parameters if self.momentum else 0

    def step(self, rows: Tensor, gradients: Tensor, state: Tensor, lr: Tensor) -> None:
        if self.weight_decay:
            gradients.add_(rows, alpha=self.weight_decay)
        if self.momentum:
            state.mul_(self.momentum).add_(gradients)
            gradients = gradients.add_(state, alpha=self.momentum) if self.nesterov else state
        rows.addcmul_(gradients, lr, value=-1.0)


@dataclass(frozen=True)
class RowAdam(RowOptimizer):
    """torch.optim.Adam, or AdamW with decoupled weight decay. State: mean, mean square, step count."""

    betas: tuple[float, float]
    eps: float
    weight_decay: float
    decoupled: bool

    def state_width(self, parameters: int) -> int:
        return 2 * parameters + 1

    def step(self, rows: Tensor, gradients: Tensor, state: Tensor, lr: Tensor) -> None:
        width = rows.shape[1]
        mean, square, count = state[:, :width], state[:, width : 2 * width], state[:, 2 * width :]
        first, second = self.betas
        count += 1
        if self.weight_decay and self.decoupled:
            rows.mul_(1 - lr * self.weight_decay)
        elif self.weight_decay:
            gradients.add_(rows, alpha=self.weight_decay)
        mean.lerp_(gradients, 1 - first)
        square.mul_(second).addcmul_(gradients, gradients, value=1 - second)
        size = lr / (1 - first**count)
        denominator = square.sqrt().div_((1 - second**count).sqrt()).add_(self.eps)
        rows.addcmul_(mean / denominator, size, value=-1.0)


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
        optimizer = self._make([probe], [0.1])
        probe.grad = torch.ones(3)
        optimizer.step()
        state = optimizer.state[probe]
        return [(name, state[name].numel() == 1) for name in sorted(state) if isinstance(state[name], Tensor)]

    def _make(self, rows: list[Tensor], lrs: list[float]) -> torch.optim.Optimizer:
        groups = [{"params": [row], "lr": lr} for row, lr in zip(rows, lrs, strict=True)]
        return self.kind(groups, **self.arguments)

    def state_width(self, parameters: int) -> int:
        return 1 + sum(1 if single else parameters for _, single in self.entries)

    def step(self, rows: Tensor, gradients: Tensor, state: Tensor, lr: Tensor) -> None:
        parameters = [row.clone().requires_grad_() for row in rows]
        optimizer = self._make(parameters, lr.flatten().tolist())
        started = state[:, 0].bool().tolist()
        for index, parameter in enumerate(parameters):
            parameter.grad = gradients[index]
            if started[index]:
                optimizer.state[parameter] = self._unpack(state[index, 1:], rows.shape[1])
        optimizer.step()
        with torch.no_grad():
            for index, parameter in enumerate(parameters):
                rows[index] = parameter
                state[index, 0] = 1.0
                state[index, 1:] = self._pack(optimizer.state[parameter])

    def _unpack(self, packed: Tensor, width: int) -> dict[str, Tensor]:
        entries, at = {}, 0
        for name, single in self.entries:
            entries[name] = packed[at].clone() if single else packed[at : at + width].clone()
            at += 1 if single else width
        return entries

    def _pack(self, entries: dict[str, Tensor]) -> Tensor:
        return torch.cat([entries[name].float().reshape(-1) for name, _ in self.entries])


def row_optimizer(spec: OptimizerSpec) -> RowOptimizer:
    """The optimizer for whole matrices of rows."""
    if spec.name == "sgd" and not spec.extra:
        return RowSGD(spec.momentum, spec.nesterov, spec.weight_decay)
    if spec.name in ("adam", "adamw") and not spec.extra:
        return RowAdam(spec.betas or (0.9, 0.999), spec.eps or 1e-8, spec.weight_decay, spec.name == "adamw")
    kind = _classes()[spec.name]
    takes = inspect.signature(kind).parameters
    given = {name: getattr(spec, name) for name in ("weight_decay", "momentum", "nesterov", "betas", "eps")}
    arguments = {name: value for name, value in given.items() if name in takes and value}
    unknown = sorted(set(spec.extra) - set(takes))
    if unknown:
        raise ModelError(f"optimizer.{unknown[0]}: {spec.name} has no such setting; it takes {', '.join(takes)}")
    return RowTorch(kind, {**arguments, **spec.extra})
