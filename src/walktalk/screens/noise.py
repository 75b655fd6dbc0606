"""Noise: on purpose, so that a model tells little of the data behind it, or out of malice.

`private(C, z)`: what goes in is cut to length C, and Gaussian noise of standard deviation z C is added to every number:
the Gaussian mechanism, for changes of which nobody is to learn from whose data they come.
`noise(s)`: Gaussian noise s times as long as the model itself, as a bad node would send it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walktalk.codecs import uniform
from walktalk.screens.rule import NumberRule, ScreenRule

if TYPE_CHECKING:
    from torch import Tensor


class Private(ScreenRule):
    """Cuts, and adds noise; what others there are does not matter."""

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
    """A model under noise."""

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
    """For each key so many numbers of a standard normal distribution (Box and Muller)."""
    import torch

    pairs = uniform(keys, 2 * count).view(len(keys), 2, count)
    # 1 − u is in (0, 1]: its logarithm is finite.
    return (-2.0 * torch.log1p(-pairs[:, 0])).sqrt() * torch.cos(2.0 * torch.pi * pairs[:, 1])
