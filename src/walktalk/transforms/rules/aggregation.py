"""Robust aggregation: screens against bad nodes, for one model at a time or for several.

`clip(r)`: x ← x + Σ_j w_j · min(1, r‖x‖ / ‖x_j − x‖) (x_j − x), ClippedGossip (He, Karimireddy, Jaggi 2022) with a
radius that follows the model's own norm: no attacker moves a node by more than r times that.
`refuse(r)`: the same, but what is farther away than that does not count at all, unless all witnesses, the models that
came last from other neighbours, are as near to it. Then it is the own model that is astray: that of a node that was
away for long, or whose first model was a bad one.
`facing(c)`: what points away from the own model, by an angle whose cosine is below c, does not count.

A model of zeros has no norm to go by: from there every difference counts.

`median`, and `trim(b)`: the middle of several models, number by number, and their mean without the b largest and the b
smallest (Yin, Chen, Ramchandran, Bartlett 2018). All models count alike, the own one among them; weights do not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walktalk.core.lazy import later
from walktalk.transforms.rules.rule import SCREENS, ScreenRule

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = later("torch")


class Clip(ScreenRule):
    """Cuts differences that are too long to what counts in full."""

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
        shares = self.shares(own[:, :parameters], differences[:, :, :parameters], weights)
        return own + ((weights * shares).unsqueeze(2) * differences).sum(1)

    def shares(self, own: Tensor, differences: Tensor, weights: Tensor) -> Tensor:
        """How much of each difference counts."""
        lengths = differences.norm(dim=2).clamp(min=1e-30)
        shares: Tensor = (self.reach(own).unsqueeze(1) / lengths).clamp(max=1.0)
        return shares

    def reach(self, models: Tensor) -> Tensor:
        """The longest difference from each of these that counts in full."""
        norms = models.norm(dim=-1)
        reach: Tensor = (self.radius * norms).where(norms > 0, norms.new_full((), float("inf")))
        return reach


class Refuse(Clip):
    """Refuses models that are too far away, unless all witnesses agree with them."""

    name = "refuse"
    refuses = True
    witnesses = 2

    def __init__(self, radius: float = 0.7) -> None:
        """
        - `radius`: how far away a model may be to count, as a multiple of the own model's norm.
        """
        super().__init__(radius)

    def shares(self, own: Tensor, differences: Tensor, weights: Tensor) -> Tensor:
        near: Tensor = differences.norm(dim=2) <= self.reach(own).unsqueeze(1)
        witness = weights == 0
        if bool(witness.any()):
            near |= self.vouched(own, differences, witness)
        return near.to(differences.dtype)

    def vouched(self, own: Tensor, differences: Tensor, witness: Tensor) -> Tensor:
        """Whether there are witnesses, and all of them are near to a model."""
        apart = (differences.unsqueeze(2) - differences.unsqueeze(1)).norm(dim=3)  # nodes x models x models
        near = apart <= self.reach(own.unsqueeze(1) + differences).unsqueeze(1)
        agreed: Tensor = (near | ~witness.unsqueeze(1)).all(2) & witness.any(1, keepdim=True)
        return agreed


def finite_differences(own: Tensor, others: Tensor) -> Tensor:
    """Others minus own; all zero for a model in which anything is not finite."""
    differences = others - own.unsqueeze(1)
    # The sum of squares, and not each number: numbers so large that it overflows are as bad as infinite ones.
    sound = (differences * differences).sum(2, keepdim=True).isfinite()
    return differences.where(sound, differences.new_zeros(()))


class Facing(Refuse):
    """Refuses models that point away from the own one."""

    name = "facing"
    witnesses = 0

    def __init__(self, cosine: float = -0.5) -> None:
        """
        - `cosine`: the least of the angle between a model and the own one, from -1 to 1.
        """
        if not -1 <= cosine <= 1:
            raise ValueError("a cosine from -1 to 1 is needed")
        super().__init__(float("inf"))
        self.cosine = cosine

    def shares(self, own: Tensor, differences: Tensor, weights: Tensor) -> Tensor:
        models = own.unsqueeze(1) + differences
        lengths = models.norm(dim=2) * own.norm(dim=1, keepdim=True)
        along = (models * own.unsqueeze(1)).sum(2)
        faces: Tensor = along >= self.cosine * lengths
        return faces.to(differences.dtype)


class Trim(ScreenRule):
    """The mean, number by number, without the largest and the smallest."""

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
    sound = others.where(others.isfinite(), own.unsqueeze(1))
    return torch.cat([own.unsqueeze(1), sound], 1).sort(1).values


for _screen in (Clip, Refuse, Facing, Trim, Median):
    SCREENS.add(_screen.name, _screen)
