"""An optimizer as a person names it, checked before anything is trained."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, field
from typing import Any

import torch

from walktalk.core.errors import ModelError

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
            raise ModelError(
                f"optimizer: {self.name!r} is unknown or not element-wise; allowed: {', '.join(sorted(element_wise()))}"
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
            raise ModelError(f"schedule.warmup: {self.warmup} is not possible; allowed: 0 to below 1")
        if not all(0 < at < 1 for at in self.decay_at) or list(self.decay_at) != sorted(set(self.decay_at)):
            raise ModelError(
                f"schedule.decay_at: {list(self.decay_at)} is not possible; rising numbers between 0 and 1"
            )
        if not 0 < self.factor <= 1:
            raise ModelError(f"schedule.factor: {self.factor} is not possible; allowed: above 0, at most 1")
        if self.cosine_to is not None and not 0 <= self.cosine_to <= 1:
            raise ModelError(f"schedule.cosine_to: {self.cosine_to} is not possible; allowed: 0 to 1")
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
