"""Loss and accuracy against iterations, time or bits: mean ± σ over repetitions (the paper's Figures 4 to 9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from walktalk.core.errors import StudyError
from walktalk.protocols import Described, known
from walktalk.report.figures.axes import (
    Axis,
    Curve,
    SharedAxis,
    Unit,
    band,
    mean_curve,
    needs_logarithm,
    scale_accuracy,
    scale_loss,
    scale_shared_axis,
    shared_axis,
)
from walktalk.report.figures.style import (
    GREY,
    OPENING,
    Algorithms,
    legend_below,
    line_style,
    missing_words,
    new_figure,
    note_below,
    spread_words,
    styled,
)

# -- histories: of a study, of one run, or of several runs by name ----------------------------------------------------

History = pd.DataFrame | Mapping[str, pd.DataFrame]

ALONE = " "  # the label of a run that nobody gave a name


def as_history(given: History) -> pd.DataFrame:
    """A table with a column for the algorithm and one for the repetition, whatever was given.

    Args:
        given: A study's history; `run.history` of one run; or histories by name, for a legend: of runs, or of studies
            with one algorithm each.
    """
    if isinstance(given, Mapping):
        parts = [_labelled(history, str(name), rename=True) for name, history in given.items()]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return _labelled(given, ALONE)


def _labelled(history: pd.DataFrame, name: str, rename: bool = False) -> pd.DataFrame:
    missing: dict[str, Any] = {}
    if "algorithm" not in history or (rename and history["algorithm"].nunique() <= 1):
        missing["algorithm"] = name
    if "repetition" not in history:
        missing["repetition"] = 0
    return history.assign(**missing) if missing else history


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
        axis, logarithmic, opens = shared_axis([history], x, time), False, False
        scale_shared_axis(panels, axis)
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
    axis: SharedAxis,
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
    panel: Any, history: pd.DataFrame, axis: SharedAxis, drawn: Sequence[Curve], algorithms: Algorithms | None = None
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


# -- curves with the failures marked (the paper's Figure 9) -----------------------------------------------------------

EVENTS = ("kill", "revive", "pause", "resume", "hang", "trains_again", "partition", "heal")


class Failure(NamedTuple):
    """Something that went wrong, or was mended."""

    time: float  # seconds
    event: str  # of the trace: "kill", "revive" ...
    node: int  # −1 where it is about no node in particular


def failures(
    history: History,
    marks: Iterable[Failure],
    *,
    time: str | None = None,
    algorithms: Algorithms | None = None,
    title: str | None = None,
) -> Figure:
    """Curves against time, with a line at every failure, and its name above every panel.

    Args:
        history: A study's history.
        marks: What went wrong and when, from `marks_of(trace)`.
        time: What time is called, "Virtual time" for instance.
        algorithms: What the study's folder says of its algorithms; their labels alone say it if left out.
        title: Above the figure; none if left out.
    """
    history = as_history(history)
    figure = curves(history, "time", time=time, algorithms=algorithms, title=title)
    unit = shared_axis([history], "time").unit
    marks = list(marks)
    for panel in figure.axes:
        for at in sorted({mark.time for mark in marks}):
            failure_line(panel, at / unit.size)
            here = [mark for mark in marks if mark.time == at]
            panel.annotate(
                _words(here),
                (at / unit.size, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=7,
                color=GREY,
            )
    return figure


def failure_line(panel: Any, at: float) -> None:
    """Where something goes wrong. Solid: gossip is dashed, and the learning rate dotted."""
    panel.axvline(at, color=GREY, linewidth=1.0, zorder=1, label="_")


def marks_of(trace: pd.DataFrame) -> list[Failure]:
    """The failures in a trace."""
    rows = trace[trace["event"].isin(EVENTS)]
    return [
        Failure(float(time), str(event), int(node))
        for time, event, node in zip(rows["time"], rows["event"], rows["node"], strict=True)
    ]


def _words(marks: list[Failure]) -> str:
    nodes = " ".join(dict.fromkeys(str(mark.node) for mark in marks if mark.node >= 0))
    return f"{marks[0].event} {nodes}".strip()
