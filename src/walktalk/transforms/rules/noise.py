"""Noise on models: so that they tell little of the data behind them, with the account of how much; or out of malice.

`private(C, z)`: what goes in is cut to length C, and Gaussian noise of standard deviation z C is added to every number:
the Gaussian mechanism, for changes of which nobody is to learn from whose data they come.
`noise(s)`: Gaussian noise s times as long as the model itself, as a bad node would send it.

How much all that a node has released tells of its data, ε at a given δ, the accountant of Opacus says. Two worlds are
neighbours that differ in all data of one node: in one of them its release is zero, as if it had none (`zero-out`), so
that the sensitivity is C. No chance is claimed from which samples a training takes: every training is one release of
the whole node. k releases, each of which may depend on all before, compose by Rényi divergences (Mironov 2017;
converted as by Balle et al. 2020): α k / (2 z²) at order α.
"""

from __future__ import annotations

import logging
import math
import warnings
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from walktalk.core.errors import SpecError, UnavailableError
from walktalk.core.lazy import later
from walktalk.core.settings import misfit
from walktalk.transforms.codecs import uniform
from walktalk.transforms.rules.aggregation import NUMBER_RULES, SCREENS, NumberRule, ScreenRule

if TYPE_CHECKING:
    from torch import Tensor
if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = later("torch")

Spent = tuple[tuple[float, int], ...]  # noise, and how many releases had it
ORDERS = tuple(1 + x / 100 for x in range(2, 1000)) + tuple(range(11, 513)) + tuple(2**k for k in range(10, 21))
MOST = 2**40  # releases that anybody could make


class Private(ScreenRule):
    """Cuts what goes in to a length and adds noise; what others there are does not matter."""

    name = "private"
    releases = True

    def __init__(self, clip: float = 1.0, noise: float = 1.0) -> None:
        """
        - `clip`: the longest that gets through.
        - `noise`: standard deviation of what is added to every number, as a multiple of `clip`.
        """
        if not clip > 0 or noise < 0:
            raise ValueError("a length above 0 and noise of 0 or more are needed")
        self.clip, self.noise = clip, noise

    def mixed(self, own: Tensor, others: Tensor, weights: Tensor, keys: Tensor, parameters: int) -> Tensor:
        made = own.clone()
        told = made[:, :parameters]
        told = told.where((told * told).sum(1, keepdim=True).isfinite(), told.new_zeros(()))
        lengths = told.norm(dim=1, keepdim=True).clamp(min=1e-30)
        made[:, :parameters] = told * (self.clip / lengths).clamp(max=1.0)
        if self.noise:
            made[:, :parameters] += self.noise * self.clip * normal(keys, parameters)
        return made


class Noise(NumberRule):
    """Adds noise to a model, as long as a share of its norm."""

    name = "noise"

    def __init__(self, size: float = 1.0) -> None:
        """
        - `size`: how long the noise is, as a multiple of the model's norm.
        """
        self.size = size

    def mixed(self, own: Tensor, others: Tensor, weights: Tensor, keys: Tensor, parameters: int) -> Tensor:
        made = own.clone()
        each = self.size * own[:, :parameters].norm(dim=1, keepdim=True) / parameters**0.5
        made[:, :parameters] += each * normal(keys, parameters)
        return made


def normal(keys: Tensor, count: int) -> Tensor:
    """So many numbers of a standard normal distribution for each key (Box and Muller)."""
    pairs = uniform(keys, 2 * count).view(len(keys), 2, count)
    # 1 − u is in (0, 1]: its logarithm is finite.
    return (-2.0 * torch.log1p(-pairs[:, 0])).sqrt() * torch.cos(2.0 * torch.pi * pairs[:, 1])


@dataclass(frozen=True)
class Privacy:
    """What protects a node's data, and how much of it may be spent.

    Args:
        clip: the longest update, C; a longer one is cut to that.
        noise: standard deviation of the noise on every number, as a multiple of `clip`, z.
        delta: δ, the chance with which ε may not hold.
        budget: the largest ε that a node may spend; none if left out.
    """

    clip: float = 1.0
    noise: float = 1.0
    delta: float = 1e-5
    budget: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.clip < math.inf:
            raise misfit("privacy.clip", self.clip, "a length above 0", SpecError)
        if not 0 < self.noise < math.inf:
            raise SpecError(
                f"privacy.noise: with {self.noise:g} nothing is hidden and ε is infinite; give a number above 0, such "
                "as 1.0, or leave privacy out"
            )
        if not 0 < self.delta < 1:
            raise misfit("privacy.delta", self.delta, "a number above 0 and below 1, such as 1e-5", SpecError)
        if self.budget is not None and self.most() < 1:
            raise SpecError(
                f"privacy.budget: one update with noise {self.noise:g} costs ε = {self.epsilon(1):.3g} at δ = "
                f"{self.delta:g}, and {self.budget:g} is allowed; raise noise or budget"
            )

    @property
    def rule(self) -> str:
        """The screen that every update goes through."""
        return f"private({self.clip!r}, {self.noise!r})"

    def epsilon(self, releases: int, before: Spent = ()) -> float:
        """What so many releases cost a node, beside what it had spent before."""
        return epsilon_of((*before, (self.noise, releases)), self.delta)

    def most(self, before: Spent = ()) -> int:
        """How many releases the budget allows, beside what was spent before."""
        if self.budget is None:
            return MOST
        if self.epsilon(1, before) > self.budget:
            return 0
        low, high = 1, 2
        while high < MOST and self.epsilon(high, before) <= self.budget:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.epsilon(middle, before) <= self.budget else (low, middle)
        return low


@lru_cache(maxsize=2**16)
def epsilon_of(spent: Spent, delta: float) -> float:
    """ε of all these releases at a δ; 0 where there were none."""
    history = [(noise, 1.0, releases) for noise, releases in spent if releases]
    if not history:
        return 0.0
    accountant = _accountant()()
    accountant.history = history
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the best order is the first or last: the bound holds all the same
        return max(0.0, float(accountant.get_epsilon(delta=delta, alphas=list(ORDERS))))


@lru_cache(maxsize=1)
def _accountant() -> Any:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        from opacus.accountants import RDPAccountant
    except ImportError as error:
        raise UnavailableError(
            "privacy: needs an accountant; install it with pip install 'walktalk[privacy]', or leave privacy out"
        ) from error
    finally:
        root.handlers[:] = before[0]
        root.setLevel(before[1])  # it sets up the logging of the whole process when it is imported
    return RDPAccountant


SCREENS.add(Private.name, Private)
NUMBER_RULES.add(Noise.name, Noise)


# -- Steps of a length of their own in each number, by its second moment (Reddi et al. 2021) --------------------------
# What has come in by now, v, from the mean change Δ of a round; before the first round it is τ²:
# `adagrad_moment(τ)`: v + Δ², `adam_moment(β, τ)`: β v + (1 − β) Δ², `yogi_moment(β, τ)`: v − (1 − β) Δ² sign(v − Δ²).
# `scaled_step(τ)`: x + w m / (√v + τ), where w is the weight of m.
#
# What is not finite stays so: a training that has gone astray is to be seen.


class SecondMoment(NumberRule):
    """The next v: the own numbers are Δ, the others, if there are any, v of before. Statistics are those of Δ."""

    def __init__(self, tau: float = 1e-3) -> None:
        """
        - `tau`: the square root of what v begins with.
        """
        if not tau > 0:
            raise ValueError("a tau above 0 is needed")
        self.tau = tau

    def mixed(self, own: Tensor, others: Tensor, weights: Tensor, keys: Tensor, parameters: int) -> Tensor:
        made = own.clone()
        square = own[:, :parameters] ** 2
        before = others[:, 0, :parameters] if others.shape[1] else square.new_full((), self.tau**2)
        made[:, :parameters] = self.next(before, square)
        return made

    @abstractmethod
    def next(self, before: Tensor, square: Tensor) -> Tensor:
        """Give the next v, from that of before and Δ²."""


class AdagradMoment(SecondMoment):
    """Adds up the squares of all changes that ever came."""

    name = "adagrad_moment"

    def next(self, before: Tensor, square: Tensor) -> Tensor:
        return before + square


class AdamMoment(SecondMoment):
    """A running mean of squares, which forgets what is long ago."""

    name = "adam_moment"

    def __init__(self, beta: float = 0.99, tau: float = 1e-3) -> None:
        """
        - `beta`: how much is kept of what was before.
        - `tau`: the square root of what v begins with.
        """
        if not 0 <= beta < 1:
            raise ValueError("a beta of at least 0 and below 1 is needed")
        super().__init__(tau)
        self.beta = beta

    def next(self, before: Tensor, square: Tensor) -> Tensor:
        return self.beta * before + (1.0 - self.beta) * square


class YogiMoment(AdamMoment):
    """Changes v by (1 − β) Δ² in the direction of Δ², however far v is from it."""

    name = "yogi_moment"

    def next(self, before: Tensor, square: Tensor) -> Tensor:
        return before - (1.0 - self.beta) * square * (before - square).sign()


class ScaledStep(NumberRule):
    """Takes the step x + w m / (√v + τ): x are the own numbers, the others m, whose statistics are taken, and v."""

    name = "scaled_step"

    def __init__(self, tau: float = 1e-3) -> None:
        """
        - `tau`: what is added to the square root of v.
        """
        if not tau > 0:
            raise ValueError("a tau above 0 is needed")
        self.tau = tau

    def mixed(self, own: Tensor, others: Tensor, weights: Tensor, keys: Tensor, parameters: int) -> Tensor:
        made = others[:, 0].clone()
        moment, second = others[:, 0, :parameters], others[:, 1, :parameters]
        made[:, :parameters] = own[:, :parameters] + weights[:, :1] * moment / (second.sqrt() + self.tau)
        return made


for _rule in (AdagradMoment, AdamMoment, YogiMoment, ScaledStep):
    NUMBER_RULES.add(_rule.name, _rule)
