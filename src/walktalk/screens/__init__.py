"""Screens: rules for mixing that look at the numbers, of models that may be bad. A protocol names one in `Screen`."""

from walktalk.screens.accounting import MOST, Privacy, Spent, epsilon_of
from walktalk.screens.adaptive import AdagradMoment, AdamMoment, ScaledStep, YogiMoment
from walktalk.screens.clip import Clip, Facing, Refuse
from walktalk.screens.middle import Median, Trim
from walktalk.screens.noise import Noise, Private, normal
from walktalk.screens.rule import SCREENS, ScreenRule, screen_named

for _rule in (Clip, Refuse, Facing, Trim, Median, Private, Noise, AdagradMoment, AdamMoment, YogiMoment, ScaledStep):
    SCREENS.add(_rule.name, _rule)

__all__ = [
    "MOST",
    "SCREENS",
    "AdagradMoment",
    "AdamMoment",
    "Clip",
    "Facing",
    "Median",
    "Noise",
    "Privacy",
    "Private",
    "Refuse",
    "ScaledStep",
    "ScreenRule",
    "Spent",
    "Trim",
    "YogiMoment",
    "epsilon_of",
    "normal",
    "screen_named",
]
