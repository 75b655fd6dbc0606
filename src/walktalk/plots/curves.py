"""Loss and accuracy against iterations, time or bits: mean ± σ over repetitions (the paper's Figures 4 to 9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from walktalk.errors import StudyError
from walktalk.plots.along import Along, along, scale_along
from walktalk.plots.histories import ALONE, History, as_history
from walktalk.plots.mean_curve import Axis, Curve, mean_curve
from walktalk.plots.notes import OPENING, legend_below, missing_words, note_below, spread_words
from walktalk.plots.scales import band, needs_logarithm, scale_accuracy, scale_loss
from walktalk.plots.style import Algorithms, line_style, new_figure, styled
from walktalk.plots.units import Unit
from walktalk.protocols import Described, known

VALUES = {"train_loss": "Training loss", "test_accuracy": "Test accuracy (%)"}
THIN = 0.8  # points: a line to compare with


def curves(
    history: History,
    x: Axis = "iteration",
    *,
    time: str | None = None,
    algorithms: Algorithms | None = None,
    title: str | None = None,
) -> Figure:
    """One panel for the loss, and one for the accuracy where the task has one.

    Args:
        history: A study's history, a run's, or several runs' by name.
        x: Along what: "iteration", "time" or "bits".
        time: What time is called, "Virtual time" for instance; wall-clock time, as in the paper, unless given.
        algorithms: What the study's folder says of its algorithms; their labels alone say it if left out.
        title: Above the panels.
    """
    history = as_history(history)
    if history.empty:
        raise StudyError("the history has no rows yet, so there is nothing to draw; finish the study with --resume")
    values = [name for name in VALUES if history[name].notna().any()] or ["train_loss"]  # all diverged: an empty panel
    with styled():
        figure = new_figure(3.6 * len(values) + 0.4, 3.3)
        panels = figure.subplots(1, len(values), squeeze=False)[0]
        axis, logarithmic, opens = along([history], x, time), False, False
        scale_along(panels, axis)
        for panel, value in zip(panels, values, strict=True):
            drawn = draw_curves(panel, history, axis, value, algorithms=algorithms)
            if value == "test_accuracy":
                opens = scale_accuracy([panel], drawn)
            else:
                logarithmic = needs_logarithm(drawn)
                scale_loss([panel], drawn, logarithmic)
            draw_bands(panel, history, axis, drawn, algorithms)
        handles, labels = panels[0].get_legend_handles_labels()
        if labels != [ALONE]:
            legend_below(figure, handles, labels)
        notes = (spread_words([history], logarithmic), OPENING if opens else "", missing_words([history]))
        note_below(figure, notes)
        if title:
            figure.suptitle(title, fontsize=10)
    return figure


def draw_curves(
    panel: Any,
    history: pd.DataFrame,
    axis: Along,
    value: str,
    *,
    thin: bool = False,
    algorithms: Algorithms | None = None,
) -> list[Curve]:
    """The lines of all algorithms of a study in one panel; what was drawn, to find the limits of the other axis.

    Thin ones are there to compare with: without a band and without a name in the legend.
    """
    named = known((str(label) for label in history["algorithm"]), algorithms)
    drawn = [mean_curve(history[history["algorithm"] == label], axis.name, value) for label in named]
    if axis.logarithmic:  # the start is infinitely far away, and a line to there would be flat
        drawn = [Curve(*(part[curve.x > 0] for part in (curve.x, curve.mean, curve.std))) for curve in drawn]
    if thin:
        drawn = [Curve(curve.x, curve.mean, np.zeros_like(curve.std)) for curve in drawn]
    for one, curve in zip(named.values(), drawn, strict=True):
        _draw(panel, curve, axis.unit, one, thin)
    panel.set_ylabel(VALUES[value])
    return drawn


def draw_bands(
    panel: Any, history: pd.DataFrame, axis: Along, drawn: Sequence[Curve], algorithms: Algorithms | None = None
) -> None:
    """The bands around the lines that `draw_curves` drew first, when the panel has its scale."""
    named = known((str(label) for label in history["algorithm"]), algorithms).values()
    logarithmic = panel.get_yscale() == "log"
    for one, curve in zip(named, drawn, strict=False):  # thin lines come after those of the study, and have none
        if curve.std.any():
            low, high = band(curve, logarithmic)
            panel.fill_between(curve.x / axis.unit.size, low, high, color=one.colour, alpha=0.16, linewidth=0)


def _draw(panel: Any, curve: Curve, unit: Unit, one: Described, thin: bool) -> None:
    at, style, colour = curve.x / unit.size, line_style(one.family), one.colour
    if thin:
        panel.plot(at, curve.mean, color=colour, linestyle=style, linewidth=THIN, zorder=2.5, label="_")
        return
    panel.plot(at, curve.mean, color=colour, linestyle=style, label=one.heading, zorder=3)
    alone = _alone(curve)
    if alone.any():  # a line needs two points
        panel.plot(at[alone], curve.mean[alone], ".", color=colour, markersize=5, zorder=3, label="_")


def _alone(curve: Curve) -> Any:
    """Points with nothing known to their left and to their right."""
    there = np.concatenate([[False], np.isfinite(curve.mean), [False]])
    return there[1:-1] & ~there[:-2] & ~there[2:]
