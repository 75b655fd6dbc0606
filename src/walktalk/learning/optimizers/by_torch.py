"""All other element-wise optimizers by torch.optim itself, clipping of gradients, and the choice among them all."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from walktalk.core.errors import ModelError
from walktalk.core.settings import misfit
from walktalk.learning.optimizers.sgd_and_adam import (
    OptimizerWave,
    RowAdam,
    RowOptimizer,
    RowSGD,
    Spread,
    to_rows,
    to_vector,
)

# -- An optimizer as a person names it, checked before anything is trained --------------------------------------------

NOT_ELEMENT_WISE = {"LBFGS", "Adafactor", "Muon", "SparseAdam", "Optimizer"}


def element_wise() -> dict[str, type[torch.optim.Optimizer]]:
    """torch.optim's element-wise optimizers, by their names in small letters."""
    found = {}
    for name, thing in vars(torch.optim).items():
        if inspect.isclass(thing) and issubclass(thing, torch.optim.Optimizer) and name not in NOT_ELEMENT_WISE:
            found[name.lower()] = thing
    return found


@dataclass(frozen=True)
class OptimizerSpec:
    """An optimizer by torch.optim's name, with its settings."""

    name: str = "sgd"  # sgd, adam, adamw, or another element-wise optimizer of torch.optim
    lr: float = 0.05  # learning rate
    momentum: float = 0.0  # sgd: share of the last step that is kept
    nesterov: bool = False  # sgd: Nesterov's form of momentum
    weight_decay: float = 0.0  # as torch.optim has it
    betas: tuple[float, float] | None = None  # None: torch.optim's own default
    eps: float | None = None  # added to the denominator; None: torch.optim's own default
    extra: dict[str, Any] = field(default_factory=dict)  # further arguments of the torch.optim class

    def __post_init__(self) -> None:
        if self.name not in element_wise():
            names = ", ".join(sorted(element_wise()))
            raise misfit("optimizer", self.name, f"those of torch.optim that are element-wise: {names}", ModelError)
        for key, value in (("weight_decay", self.weight_decay), ("momentum", self.momentum)):
            if value < 0:
                raise misfit(f"optimizer.{key}", value, "a number, 0 or more", ModelError)
        if not self.lr > 0:
            raise misfit("optimizer.lr", self.lr, "a number above 0", ModelError)
        if self.eps is not None and not self.eps > 0:
            raise misfit("optimizer.eps", self.eps, "a number above 0", ModelError)
        if self.betas is not None and (len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas)):
            raise misfit("optimizer.betas", self.betas, "two numbers from 0 to below 1", ModelError)
        if self.nesterov and not self.momentum:
            raise ModelError(f"optimizer.nesterov: true needs a momentum above 0, not {self.momentum:g}")
        self._fits()

    def _fits(self) -> None:
        """Whether the optimizer has every setting that was given, and torch accepts the further ones."""
        kind = element_wise()[self.name]
        takes = [key for key in inspect.signature(kind).parameters if key not in ("params", "lr")]
        given = {key: getattr(self, key) for key in ("momentum", "nesterov", "weight_decay", "betas", "eps")}
        for key in (*(key for key, value in given.items() if value), *self.extra):
            if key not in takes:
                raise ModelError(f"optimizer.{key}: {self.name} has no such setting; it takes {', '.join(takes)}")
        if not self.extra:
            return  # the settings above have been looked at; torch's first optimizer imports its compiler, for a second
        try:
            kind([torch.zeros(1)], lr=self.lr, **self.extra)  # type: ignore[call-arg]
        except (TypeError, ValueError) as error:
            raise ModelError(f"optimizer: {self.name} with {self.extra} is not possible: {error}") from error


# The learning rate over a run: linear warm-up, then steps or a cosine, by the share of the run that is done.

FIRST_FACTOR = 0.01  # of the full rate, at the very start of a warm-up: a training with none at all would be wasted


@dataclass(frozen=True)
class Schedule:
    """The learning rate over a run; the paper's (Tables 5 and 6): warm-up, then ×0.1 at 75 % and at 90 %."""

    warmup: float = 0.0  # share of the run in which the rate grows from (almost) nothing
    decay_at: tuple[float, ...] = ()  # shares of the run at which the rate is multiplied by `factor`
    factor: float = 0.1  # what the rate is multiplied by each time
    cosine_to: float | None = None  # in place of steps: the share of the rate that half a cosine wave leaves in the end

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < 1:
            raise misfit("schedule.warmup", self.warmup, "a number from 0 to below 1", ModelError)
        if not all(0 < at < 1 for at in self.decay_at) or list(self.decay_at) != sorted(set(self.decay_at)):
            raise misfit("schedule.decay_at", list(self.decay_at), "rising numbers between 0 and 1", ModelError)
        if not 0 < self.factor <= 1:
            raise misfit("schedule.factor", self.factor, "a number above 0, at most 1", ModelError)
        if self.cosine_to is not None and not 0 <= self.cosine_to <= 1:
            raise misfit("schedule.cosine_to", self.cosine_to, "a number from 0 to 1", ModelError)
        if self.cosine_to is not None and self.decay_at:
            raise ModelError("schedule.cosine_to: and decay_at exclude each other; leave one out")

    def factor_at(self, progress: float) -> float:
        """The factor on the learning rate at a progress from 0 to 1."""
        rate = self.factor ** sum(progress >= at for at in self.decay_at)
        if progress < self.warmup:
            rate *= max(progress / self.warmup, FIRST_FACTOR)
        elif self.cosine_to is not None:
            done = (progress - self.warmup) / (1.0 - self.warmup)
            rate = self.cosine_to + (1.0 - self.cosine_to) * (1.0 + math.cos(math.pi * done)) / 2.0
        return float(rate)


# -- All other element-wise optimizers by torch.optim itself, clipping of gradients, and the choice among them all ----


class RowTorch(RowOptimizer):
    """Any element-wise optimizer of torch.optim, by torch.optim itself: one parameter group a row.

    State: a flag that says whether the row has one at all (a fresh one need not be zeros), then its entries in the
    order of their names.
    """

    waits = True

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
            raise misfit("training.clip_norm", self.norm, "a number above 0", ModelError)

    @property
    def waits(self) -> bool:  # type: ignore[override]
        return self.inner.waits

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
