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

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from walktalk.core.errors import SettingError
from walktalk.core.lazy import later
from walktalk.core.plugins import Registry, made_by_name

if TYPE_CHECKING:
    from torch import Tensor
if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = later("torch")


# -- What a number rule is: one by which a slot is set that looks at the numbers, where `Combine` only weighs them ----
# Some are screens, against bad nodes: a node's own model mixed with those of others, which may be anything. The rest
# are parts of somebody's update rule, or noise.


class NumberRule(ABC):
    """Makes rows of numbers from others: many nodes' at once in the simulator, one node's on a peer."""

    name: ClassVar[str]  # with its settings in parentheses behind it, in specifications and in the effect `Apply`
    releases: ClassVar[bool] = False  # whether it lets something of a node's data out, which is accounted for

    @abstractmethod
    def mixed(self, own: Tensor, others: Tensor, weights: Tensor, keys: Tensor, parameters: int) -> Tensor:
        """The rows that come out.

        - `own`: nodes x numbers, the models that are trusted.
        - `others`: nodes x models x numbers, those that are not; there may be none.
        - `weights`: nodes x models, how much each of those counts; what is left to 1 is the own model's. 0: a witness,
          which is only looked at.
        - `keys`: nodes; all that is random follows from them.
        - `parameters`: what comes behind so many numbers are statistics, which no distance counts.
        """


class ScreenRule(NumberRule):
    """One that protects: what is not finite never gets through it, it counts as this node's own numbers do."""

    meets: ClassVar[bool] = False  # whether it compares several models, so that they must be there at once
    refuses: ClassVar[bool] = False  # whether a model counts as it is or not at all
    witnesses: ClassVar[int] = 0  # models of other neighbours that it wants to see beside one that has come


def _is_a(kind: type, thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, kind) and thing is not kind


SCREENS: Registry[type[ScreenRule]] = Registry(
    "screen", "a screen is a class that inherits walktalk.ScreenRule", lambda thing: _is_a(ScreenRule, thing)
)
"""Every screen by name: its class, which is called with the settings that stand in parentheses behind the name."""

NUMBER_RULES: Registry[type[NumberRule]] = Registry(
    "number rule",
    "a number rule is a class that inherits walktalk.transforms.rules.NumberRule",
    lambda thing: _is_a(NumberRule, thing) and not issubclass(thing, ScreenRule),
)
"""Those that are no screens, likewise."""

_MADE: dict[str, NumberRule] = {}


def screen_named(text: str) -> ScreenRule:
    """The screen with this name and settings, e.g. "median" or "clip(0.5)"; `SpecError` where there is none."""
    found = _MADE.get(text)
    if not isinstance(found, ScreenRule):
        found = _MADE[text] = made_by_name(SCREENS, text, "screen")
    return found


def rule_named(text: str) -> NumberRule:
    """The number rule with this name and settings, screen or not; `SpecError` where there is none."""
    if text not in _MADE:
        try:
            _MADE[text] = made_by_name(NUMBER_RULES, text, "rule")
        except SettingError:  # no such name there
            return screen_named(text)
    return _MADE[text]


# -- Robust aggregation: screens against bad nodes, for one model at a time or for several ----------------------------


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
