"""Differences that are too large are cut short, or their models refused.

`clip(r)`: x ← x + Σ_j w_j · min(1, r‖x‖ / ‖x_j − x‖) (x_j − x), ClippedGossip (He, Karimireddy, Jaggi 2022) with a
radius that follows the model's own norm: no attacker moves a node by more than r times that.
`refuse(r)`: the same, but what is farther away than that does not count at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walktalk.screens.rule import ScreenRule

if TYPE_CHECKING:
    from torch import Tensor


class Clip(ScreenRule):
    """Cuts differences."""

    name = "clip"

    def __init__(self, radius: float = 0.5) -> None:
        """
        - `radius`: the longest difference that counts in full, as a multiple of the own model's norm.
        """
        if not radius > 0:
            raise ValueError("a radius above 0 is needed")
        self.radius = radius

    def mixed(self, own: Tensor, others: Tensor, weights: Tensor, keys: Tensor, parameters: int) -> Tensor:
        differences = finite_differences(own, others)
        lengths = differences[:, :, :parameters].norm(dim=2)
        shares = self.shares(lengths, self.radius * own[:, :parameters].norm(dim=1, keepdim=True))
        return own + ((weights * shares).unsqueeze(2) * differences).sum(1)

    def shares(self, lengths: Tensor, longest: Tensor) -> Tensor:
        """How much of each difference counts."""
        return (longest / lengths.clamp(min=1e-30)).clamp(max=1.0)


class Refuse(Clip):
    """Refuses models."""

    name = "refuse"

    def __init__(self, radius: float = 1.0) -> None:
        """
        - `radius`: how far away a model may be to count, as a multiple of the own model's norm.
        """
        super().__init__(radius)

    def shares(self, lengths: Tensor, longest: Tensor) -> Tensor:
        return (lengths <= longest).to(lengths.dtype)


def finite_differences(own: Tensor, others: Tensor) -> Tensor:
    """Others minus own; all zero for a model in which anything is not finite."""
    differences = others - own.unsqueeze(1)
    # The sum of squares, and not each number: numbers so large that it overflows are as bad as infinite ones.
    sound = (differences * differences).sum(2, keepdim=True).isfinite()
    return differences.where(sound, differences.new_zeros(()))
