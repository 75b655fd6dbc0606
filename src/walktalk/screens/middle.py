"""The middle of several models, number by number: what a few say that is far out does not count.

`median`, and `trim(b)`: the mean without the b largest and the b smallest (Yin, Chen, Ramchandran, Bartlett 2018). All
models count alike, the own one among them; weights do not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walktalk.screens.rule import ScreenRule

if TYPE_CHECKING:
    from torch import Tensor


class Trim(ScreenRule):
    """The mean without the ends."""

    name = "trim"
    meets = True

    def __init__(self, count: float = 1) -> None:
        """
        - `count`: how many are left out at each end; fewer where fewer than three would be left.
        """
        if count < 1 or count != int(count):
            raise ValueError("a whole number, 1 or more, is needed")
        self.count = int(count)

    def mixed(self, own: Tensor, others: Tensor, weights: Tensor, keys: Tensor, parameters: int) -> Tensor:
        ordered = all_in_order(own, others)
        count = min(self.count, (ordered.shape[1] - 1) // 2)
        return ordered[:, count : ordered.shape[1] - count].mean(1)


class Median(ScreenRule):
    """The number in the middle; of two in the middle their mean."""

    name = "median"
    meets = True

    def mixed(self, own: Tensor, others: Tensor, weights: Tensor, keys: Tensor, parameters: int) -> Tensor:
        ordered = all_in_order(own, others)
        last = ordered.shape[1] - 1
        return (ordered[:, last // 2] + ordered[:, (last + 1) // 2]) / 2


def all_in_order(own: Tensor, others: Tensor) -> Tensor:
    """All models, sorted number by number."""
    import torch

    sound = others.where(others.isfinite(), own.unsqueeze(1))
    return torch.cat([own.unsqueeze(1), sound], 1).sort(1).values
