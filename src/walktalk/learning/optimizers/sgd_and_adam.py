"""SGD on rows, in one pass over the memory where torch's fused kernel rounds as the plain one does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from walktalk.learning import kernels

# -- How parameters of many rows lie in one vector, and what an optimizer on rows can do ------------------------------

# How the rows of a wave lie in memory while they are trained: one vector, parameter after parameter.

COARSE = 2**21  # numbers of a parameter in all rows, on average
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
        """How long the vector is."""
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

    @property
    def is_coarse(self) -> bool:
        """Whether parameters are so large that a kernel for each costs nothing."""
        return self.length > COARSE * len(self.sizes)

    def has_kernels(self, of: Tensor) -> bool:
        """Whether a kernel of our own does at once what would be a copy for each parameter."""
        dense = of.dim() == 1 or of.stride(1) == 1
        return of.is_cuda and of.dtype == torch.float32 and dense and kernels.is_possible()

    def over(self, numbers: Tensor) -> Tensor | float:
        """One number per row [W] as one per element; plain where all rows have the same."""
        if numbers.device.type == "cpu":  # a GPU is not asked: that waits
            array = numbers.numpy()
            if bool((array == array[0]).all()):
                return float(array[0])
        vector, views = self.empty(numbers)
        if self.has_kernels(numbers):
            kernels.spread_over(numbers.contiguous(), self.sizes, vector)
            return vector
        for view in views:
            view.copy_(numbers.view(-1, 1).expand_as(view))
        return vector


@dataclass(frozen=True)
class Chosen:
    """Rows of a matrix on a GPU by their numbers, read where they are."""

    matrix: Tensor
    numbers: Tensor

    def write(self, vector: Tensor, spread: Spread) -> None:
        """Parameters from a vector into these rows; of a number that is there twice the contents must be the same."""
        start = 0
        for view, size in zip(spread.views(vector), spread.sizes, strict=True):
            kernels.scatter(view, self.matrix, self.numbers, start)
            start += size


def to_vector(rows: Tensor | Chosen, spread: Spread) -> Tensor:
    """Rows [W, P] as one vector, parameter after parameter: each parameter then is a dense [W, size].

    Rows are how models are stored and mixed; this is how they are trained. With gaps of a whole row between the
    weights of two models, a batched product takes up to three times as long.
    """
    if isinstance(rows, Chosen):
        vector, views = spread.empty(rows.matrix)
        start = 0
        for view, size in zip(views, spread.sizes, strict=True):
            kernels.gather(rows.matrix, rows.numbers, view, start)
            start += size
        return vector
    vector, views = spread.empty(rows)
    if spread.has_kernels(rows):
        kernels.spread_out(rows, spread.sizes, vector)
        return vector
    for view, part in zip(views, rows.split(spread.sizes, dim=1), strict=True):
        view.copy_(part)
    return vector


def to_rows(vector: Tensor, spread: Spread) -> Tensor:
    """Turns such a vector back into rows [W, P]."""
    return torch.cat(spread.views(vector), dim=1)


def zeros_or_vector(state: Tensor | Chosen | None, spread: Spread, like: Tensor) -> Tensor:
    """Numbers of a state as a vector; a fresh one is all zeros."""
    return like.new_zeros(spread.length) if state is None else to_vector(state, spread)


class RowOptimizer(ABC):
    """An optimizer that makes one step on all rows at once. A state of zeros is a fresh state."""

    waits: bool = False  # whether it waits for the device, and so cannot be part of a CUDA graph

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
        """The states of all rows now, [W, S]."""


@dataclass(frozen=True)
class RowSGD(RowOptimizer):
    """SGD with momentum, as torch.optim.SGD with dampening 0."""

    momentum: float
    nesterov: bool
    weight_decay: float

    def state_width(self, parameters: int) -> int:
        return parameters if self.momentum else 0

    def begin(self, lr: Tensor, state: Tensor | Chosen | None, spread: Spread) -> SGDWave:
        velocity = None if not self.momentum else zeros_or_vector(state, spread, lr)
        if lr.is_cuda and spread.is_coarse and kernels.is_possible():
            return SGDWave(self, lr, velocity, spread, by_row=True)
        return SGDWave(self, spread.over(lr), velocity, spread)

    def step_between(
        self,
        weights: Tensor,
        gradients: Tensor,
        lr: Tensor,
        spread: Spread,
        into: Chosen,
        states: tuple[Chosen, Chosen] | None,
    ) -> None:
        """A step of a wave on a GPU, whose result goes into rows of a matrix; states are read and written likewise.

        With a momentum, states must be given.
        """
        start, pair = 0, (into.matrix, into.numbers)
        where = None if states is None else (states[0].matrix, states[0].numbers, states[1].numbers)
        how = self.weight_decay, self.momentum, self.nesterov
        for w, g, size in zip(spread.views(weights), spread.views(gradients), spread.sizes, strict=True):
            kernels.sgd_between(w, g, lr, pair, where, start, *how)
            start += size

    def step_alone(self, weights: Tensor, gradients: Tensor, state: Tensor, lr: float | Tensor) -> None:
        if isinstance(lr, Tensor):
            plain_step(self, lr, weights, gradients, state if self.momentum else None)
            return
        velocity = state if self.momentum else None
        if not fused_rounds_alike():
            plain_step(self, lr, weights, gradients, velocity)
            return
        parts = [weights, gradients] if velocity is None else [weights, gradients, velocity]
        whole = len(weights) // LINE * LINE
        self._fused_step(lr, [part[:whole] for part in parts])
        if whole < len(weights):  # rounded as in a wave, whose vector is whole lines (`Spread`)
            ends, lines = [part[whole:] for part in parts], weights.new_zeros(len(parts), LINE).unbind()
            copies = [line[: len(weights) - whole] for line in lines]
            torch._foreach_copy_(copies, ends)
            self._fused_step(lr, list(lines))
            torch._foreach_copy_(ends, copies)

    def _fused_step(self, lr: float, parts: list[Tensor]) -> None:
        fused_step(self, lr, parts[0], parts[1], parts[2] if len(parts) > 2 else None)


class SGDWave(OptimizerWave):
    def __init__(
        self, settings: RowSGD, lr: Tensor | float, velocity: Tensor | None, spread: Spread, by_row: bool = False
    ) -> None:
        self.settings, self.lr, self.velocity, self.spread = settings, lr, velocity, spread
        self.by_row = by_row  # whether there is one learning rate a row, and not one a number

    def step(self, weights: Tensor, gradients: Tensor) -> None:
        settings = self.settings
        if weights.is_cuda and isinstance(self.lr, Tensor) and kernels.is_possible():
            velocity = weights if self.velocity is None else self.velocity  # not looked at without momentum
            how = settings.weight_decay, settings.momentum, settings.nesterov
            if self.by_row:
                views = (self.spread.views(vector) for vector in (weights, gradients, velocity))
                for weight, gradient, speed in zip(*views, strict=True):
                    kernels.sgd_by_row(weight, gradient, speed, self.lr, *how)
            else:
                kernels.sgd(weights, gradients, velocity, self.lr, *how)
        elif isinstance(self.lr, float) and weights.device.type == "cpu" and fused_rounds_alike():
            fused_step(settings, self.lr, weights, gradients, self.velocity)
        else:
            plain_step(settings, self.lr, weights, gradients, self.velocity)

    def state(self) -> Tensor:
        if self.velocity is None:
            return torch.zeros(self.spread.rows, 0, device=self.lr.device if isinstance(self.lr, Tensor) else "cpu")
        return to_rows(self.velocity, self.spread)

    def write(self, into: Chosen) -> None:
        """Writes the states into these rows."""
        if self.velocity is not None:
            into.write(self.velocity, self.spread)


def plain_step(
    settings: RowSGD, lr: Tensor | float, weights: Tensor, gradients: Tensor, velocity: Tensor | None
) -> None:
    """A step of SGD operation by operation, with any learning rates."""
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
    """A step of SGD in one pass over the memory: a third of the time."""
    torch._fused_sgd_(
        [weights],
        [gradients],
        [] if velocity is None else [velocity],
        weight_decay=settings.weight_decay,
        momentum=settings.momentum,
        lr=lr,
        dampening=0.0,
        nesterov=settings.nesterov,
        maximize=False,
        is_first_step=False,
    )


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


# -- Adam and AdamW on rows of a matrix -------------------------------------------------------------------------------


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
