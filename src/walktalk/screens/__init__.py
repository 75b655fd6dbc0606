"""Screens: ways to mix models of which a few may be bad or too telling. A protocol names one in `Screen`."""

from walktalk.screens.accounting import MOST, Privacy, Spent, epsilon_of
from walktalk.screens.clip import Clip, Facing, Refuse
from walktalk.screens.middle import Median, Trim
from walktalk.screens.noise import Noise, Private, normal
from walktalk.screens.rule import SCREENS, ScreenRule, screen_named

for _rule in (Clip, Refuse, Facing, Trim, Median, Private, Noise):
    SCREENS.add(_rule.name, _rule)

__all__ = [
    "MOST",
    "SCREENS",
    "Clip",
    "Facing",
    "Median",
    "Noise",
    "Privacy",
    "Private",
    "Refuse",
    "ScreenRule",
    "Spent",
    "Trim",
    "epsilon_of",
    "normal",
    "screen_named",
]
