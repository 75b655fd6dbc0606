"""Figures: curves, time line, network, partition, theory. Each function takes data and gives a matplotlib figure."""

from walktalk.lazy import listing
from walktalk.plots.along import Along, along, scale_along
from walktalk.plots.curves import curves, draw_bands, draw_curves
from walktalk.plots.failures import Failure, failure_line, failures, marks_of
from walktalk.plots.histories import History, as_history
from walktalk.plots.layout import positions
from walktalk.plots.mean_curve import AXES, Axis, Curve, is_share, mean_curve
from walktalk.plots.network import network
from walktalk.plots.notes import OPENING, legend_below, missing_words, note_below, spread_words, upright
from walktalk.plots.partition import class_counts, partition
from walktalk.plots.scales import needs_logarithm, scale_accuracy, scale_loss
from walktalk.plots.style import (
    GREY,
    WALK_COLOURS,
    Algorithms,
    colours,
    in_order,
    line_style,
    new_figure,
    save,
    save_for_print,
    styled,
    title_of,
)
from walktalk.plots.theory_bound import bound_curves
from walktalk.plots.theory_phase import phase, phase_grid
from walktalk.plots.theory_scaling import scaling
from walktalk.plots.theory_speedup import speed_up_figure
from walktalk.plots.threshold import threshold
from walktalk.plots.timeline import timeline
from walktalk.plots.units import Unit, in_words, unit_of
from walktalk.plots.variants import variants

__all__ = [
    "AXES",
    "GREY",
    "OPENING",
    "WALK_COLOURS",
    "Algorithms",
    "Along",
    "Axis",
    "Curve",
    "Failure",
    "History",
    "Unit",
    "along",
    "as_history",
    "bound_curves",
    "class_counts",
    "colours",
    "curves",
    "draw_bands",
    "draw_curves",
    "failure_line",
    "failures",
    "in_order",
    "in_words",
    "is_share",
    "legend_below",
    "line_style",
    "marks_of",
    "mean_curve",
    "missing_words",
    "needs_logarithm",
    "network",
    "new_figure",
    "note_below",
    "partition",
    "phase",
    "phase_grid",
    "positions",
    "save",
    "save_for_print",
    "scale_accuracy",
    "scale_along",
    "scale_loss",
    "scaling",
    "speed_up_figure",
    "spread_words",
    "styled",
    "threshold",
    "timeline",
    "title_of",
    "unit_of",
    "upright",
    "variants",
]

__dir__ = listing(__all__)
