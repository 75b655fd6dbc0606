"""Figures: curves, time line, network, partition. Each function takes data and gives a matplotlib figure."""

from walktalk.plots.curves import AXES, Axis, curves, draw_curves, mean_curve
from walktalk.plots.network import network
from walktalk.plots.partition import partition
from walktalk.plots.style import colours, save, styled, title_of
from walktalk.plots.timeline import timeline
from walktalk.plots.units import Unit, in_words, unit_of

__all__ = [
    "AXES", "Axis", "Unit", "colours", "curves", "draw_curves", "in_words", "mean_curve", "network", "partition",
    "save", "styled", "timeline", "title_of", "unit_of",
]  # fmt: skip
