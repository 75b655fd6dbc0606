"""Number rules: those that look at the numbers, as screens against bad models do. A protocol names one in `Apply`."""

from walktalk.lazy import listing
from walktalk.screens.accounting import MOST, Privacy, Spent, epsilon_of
from walktalk.screens.adaptive import AdagradMoment, AdamMoment, ScaledStep, YogiMoment
from walktalk.screens.clip import Clip, Facing, Refuse
from walktalk.screens.middle import Median, Trim
from walktalk.screens.noise import Noise, Private, normal
from walktalk.screens.rule import NUMBER_RULES, SCREENS, NumberRule, ScreenRule, rule_named, screen_named

for _screen in (Clip, Refuse, Facing, Trim, Median, Private):
    SCREENS.add(_screen.name, _screen)
for _rule in (Noise, AdagradMoment, AdamMoment, YogiMoment, ScaledStep):
    NUMBER_RULES.add(_rule.name, _rule)

__all__ = [
    "MOST",
    "NUMBER_RULES",
    "SCREENS",
    "AdagradMoment",
    "AdamMoment",
    "Clip",
    "Facing",
    "Median",
    "Noise",
    "NumberRule",
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
    "rule_named",
    "screen_named",
]

__dir__ = listing(__all__)
