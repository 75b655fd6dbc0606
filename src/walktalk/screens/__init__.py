"""Screens: ways to mix models of which a few may be bad or too telling. A protocol names one in `Screen`."""

from walktalk.screens.clip import Clip, Facing, Refuse
from walktalk.screens.middle import Median, Trim
from walktalk.screens.noise import Noise, Private
from walktalk.screens.rule import SCREENS, ScreenRule, screen_named

for _rule in (Clip, Refuse, Facing, Trim, Median, Private, Noise):
    SCREENS.add(_rule.name, _rule)

__all__ = ["SCREENS", "Clip", "Median", "Noise", "Private", "Refuse", "ScreenRule", "Trim", "screen_named"]
