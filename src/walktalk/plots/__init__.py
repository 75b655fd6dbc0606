"""Figures: curves, time line, network, partition, theory. Each function takes data and gives a matplotlib figure."""

from walktalk.plots.curves import AXES, Axis, curves, draw_curves, mean_curve
from walktalk.plots.failures import Failure, failures, marks_of
from walktalk.plots.network import network
from walktalk.plots.partition import partition
from walktalk.plots.style import colours, save, styled, title_of
from walktalk.plots.theory_bound import bound_curves, scaling, speed_up_figure
from walktalk.plots.theory_phase import phase, phase_grid
from walktalk.plots.timeline import timeline
from walktalk.plots.units import Unit, in_words, unit_of
from walktalk.plots.variants import variants

__all__ = [
    "AXES", "Axis", "Failure", "Unit", "bound_curves", "colours", "curves", "draw_curves", "failures", "in_words",
    "marks_of", "mean_curve", "network", "partition", "phase", "phase_grid", "save", "scaling", "speed_up_figure",
    "styled", "timeline", "title_of", "unit_of", "variants",
]  # fmt: skip
