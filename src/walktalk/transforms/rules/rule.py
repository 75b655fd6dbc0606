"""What a number rule is: one by which a slot is set that looks at the numbers, where `Combine` only weighs them.

Some are screens, against bad nodes: a node's own model mixed with those of others, which may be anything. The rest are
parts of somebody's update rule (`adaptive`), or noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from walktalk.core.errors import SettingError
from walktalk.core.plugins import Registry, made_by_name

if TYPE_CHECKING:
    from torch import Tensor


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
