"""Optimizers on the rows of a matrix: every row its own learning rate, its own state, its own step count.

SGD, Adam and AdamW are written out for whole matrices, with torch.optim's arithmetic. Every other element-wise
optimizer of torch.optim runs through torch.optim itself, row by row: exact, but slower.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from walktalk.errors import ModelError
from walktalk.learning.stacked import fused

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
        self._fits()

    def _fits(self) -> None:
        """Whether the optimizer has every setting that was given, and torch accepts the further ones."""
        kind = _classes()[self.name]
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
        """Of the vector."""
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

    def over(self, numbers: Tensor) -> Tensor | float:
        """One number per row [W] as one per element; plain where all rows have the same."""
        if numbers.device.type == "cpu":  # a GPU is not asked: that waits
            array = numbers.numpy()
            if bool((array == array[0]).all()):
                return float(array[0])
        vector, views = self.empty(numbers)
        for view in views:
            view.copy_(numbers.view(-1, 1).expand_as(view))
        return vector


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


@dataclass(frozen=True)
class RowSGD(RowOptimizer):
    """torch.optim.SGD with dampening 0."""

    momentum: float
    nesterov: bool
    weight_decay: float

    def state_width(self, parameters: int) -> int:
        return parameters if self.momentum else 0

    def begin(self, lr: Tensor, state: Tensor | None, spread: Spread) -> OptimizerWave:
        velocity = None if not self.momentum else zeros_or_vector(state, spread, lr)
        return SGDWave(self, spread.over(lr), velocity, spread)


class SGDWave(OptimizerWave):
    def __init__(self, settings: RowSGD, lr: Tensor | float, velocity: Tensor | None, spread: Spread) -> None:
        self.settings, self.lr, self.velocity, self.spread = settings, lr, velocity, spread

    def step(self, weights: Tensor, gradients: Tensor) -> None:
        settings = self.settings
        if weights.is_cuda and isinstance(self.lr, Tensor) and fused.is_possible():
            velocity = weights if self.velocity is None else self.velocity  # not looked at without momentum
            fused.sgd(
                weights, gradients, velocity, self.lr, settings.weight_decay, settings.momentum, settings.nesterov
            )
        elif isinstance(self.lr, float) and weights.device.type == "cpu" and fused_rounds_alike():
            fused_step(settings, self.lr, weights, gradients, self.velocity)
        else:
            plain_step(settings, self.lr, weights, gradients, self.velocity)

    def state(self) -> Tensor:
        if self.velocity is None:
            return torch.zeros(self.spread.rows, 0)
        return to_rows(self.velocity, self.spread)


def plain_step(
    settings: RowSGD, lr: Tensor | float, weights: Tensor, gradients: Tensor, velocity: Tensor | None
) -> None:
    """Operation by operation, with any rates."""
    if settings.weight_decay:
        gradients.add_(weights, alpha=settings.weight_decay)
    if velocity is not None:
        velocity.mul_(settings.momentum).add_(gradients)
        gradients = gradients.add_(velocity, alpha=settings.momentum) if settings.nesterov else velocity
    if isinstance(lr, float):
        weights.add_(gradients, alpha=-lr)
    else:
        weights.addcmul_(gradients, lr, value=-1.0)


def fused_step(settings: RowSGD, lr: float, weights: Tensor, gradients: Tensor, velocity: Tensor | None) -> None:
    """The same in one pass over the memory: a third of the time."""
    torch._fused_sgd_(
        [weights], [gradients], [] if velocity is None else [velocity], weight_decay=settings.weight_decay,
        momentum=settings.momentum, lr=lr, dampening=0.0, nesterov=settings.nesterov, maximize=False,
        is_first_step=False,
    )  # fmt: skip


@cache
def fused_rounds_alike() -> bool:
    """Whether both ways give the same bits here: else a row's bytes would depend on its neighbours' rates."""
    settings = RowSGD(0.9, True, 5e-4)
    numbers = torch.rand(3, 64 * LINE, generator=torch.Generator().manual_seed(0)) - 0.5
    plain, fused = numbers.clone(), numbers.clone()
    try:
        fused_step(settings, 0.05, *fused)
    except (AttributeError, RuntimeError, TypeError):
        return False  # a torch without it
    plain_step(settings, 0.05, *plain)
    return torch.equal(plain[0], fused[0]) and torch.equal(plain[2], fused[2])


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


def to_vector(rows: Tensor, spread: Spread) -> Tensor:
    """Rows [W, P] as one vector, parameter after parameter: each parameter then is a dense [W, size].

    Rows are how models are stored and mixed; this is how they are trained. With gaps of a whole row between the
    weights of two models, a batched product takes up to three times as long.
    """
    vector, views = spread.empty(rows)
    for view, part in zip(views, rows.split(spread.sizes, dim=1), strict=True):
        view.copy_(part)
    return vector


def to_rows(vector: Tensor, spread: Spread) -> Tensor:
    """Back to rows [W, P]."""
    return torch.cat(spread.views(vector), dim=1)


def zeros_or_vector(state: Tensor | None, spread: Spread, like: Tensor) -> Tensor:
    """Numbers of a state as a vector; a fresh one is all zeros."""
    return like.new_zeros(spread.length) if state is None else to_vector(state, spread)


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
        parts = [entries[name].float().reshape(-1) for name, _ in self.settings.entries]
        return torch.cat([torch.ones(1, device=self.parameters[0].device), *parts])


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
    return RowTorch(kind, {**arguments, **spec.extra})
