"""What a screen is: a rule by which a node mixes its own model with those of others, and that looks at the numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from walktalk.plugins import Registry, made_by_name

if TYPE_CHECKING:
    from torch import Tensor


class ScreenRule(ABC):
    """Mixes rows of numbers: many nodes' at once in the simulator, one node's on a peer.

    What is not finite never gets through a rule that protects: it counts as this node's own numbers do.
    """

    name: ClassVar[str]  # in specifications, with its settings in parentheses behind it
    protects: ClassVar[bool] = True  # whether it is against bad nodes, and not a part of somebody's update rule
    meets: ClassVar[bool] = False  # whether it compares several models, so that they must be there at once
    refuses: ClassVar[bool] = False  # whether a model counts as it is or not at all
    releases: ClassVar[bool] = False  # whether it lets something of a node's data out, which is accounted for
    witnesses: ClassVar[int] = 0  # models of other neighbours that it wants to see beside one that has come

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


SCREENS: Registry[type[ScreenRule]] = Registry(
    "screen",
    "a screen is a class that inherits walktalk.ScreenRule",
    lambda thing: isinstance(thing, type) and issubclass(thing, ScreenRule) and thing is not ScreenRule,
)
"""Every screen by name: its class, which is called with the settings that stand in parentheses behind the name."""

_MADE: dict[str, ScreenRule] = {}


def screen_named(text: str) -> ScreenRule:
    """The screen with this name and settings, e.g. "median" or "clip(0.5)"; `SpecError` where there is none."""
    if text not in _MADE:
        _MADE[text] = made_by_name(SCREENS, text, "screen")
    return _MADE[text]
