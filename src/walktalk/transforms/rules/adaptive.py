"""Steps of a length of their own in each number, by its second moment (Reddi et al. 2021).

What has come in by now, v, from the mean change Δ of a round; before the first round it is τ²:
`adagrad_moment(τ)`: v + Δ², `adam_moment(β, τ)`: β v + (1 − β) Δ², `yogi_moment(β, τ)`: v − (1 − β) Δ² sign(v − Δ²).
`scaled_step(τ)`: x + w m / (√v + τ), where w is the weight of m.

What is not finite stays so: a training that has gone astray is to be seen.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from walktalk.transforms.rules.rule import NUMBER_RULES, NumberRule

if TYPE_CHECKING:
    from torch import Tensor


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
