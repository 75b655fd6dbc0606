"""Loss and accuracy against iterations, time or bits: mean ± σ over repetitions (the paper's Figures 4 to 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from walktalk.errors import StudyError
from walktalk.plots.style import colours, line_style, new_figure, styled, title_of
from walktalk.plots.units import Unit, unit_of

Axis = Literal["iteration", "time", "bits"]
AXES: tuple[Axis, ...] = ("iteration", "time", "bits")
AXIS_TITLES = {"iteration": "Iterations", "time": "Wall-clock time", "bits": "Transmitted data"}
VALUES = {"train_loss": "Training loss", "test_accuracy": "Test accuracy (%)"}

GRID = 300  # points of a curve whose repetitions were measured at different places
LOG_X = 5.0  # the longest curve is that many times longer than the shortest: a linear axis would hide the short ones
LOG_Y = 40.0  # the loss falls that many times: a linear axis would hide the end

PLAIN = FuncFormatter(lambda value, _: f"{value:,g}" if 1e-3 <= value < 1e6 else f"$10^{{{np.log10(value):.0f}}}$")

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """An algorithm's mean over repetitions, and its standard deviation."""

    x: Floats
    mean: Floats
    std: Floats


def curves(history: pd.DataFrame, x: Axis = "iteration", *, title: str | None = None) -> Figure:
    """One panel for the loss, and one for the accuracy where the task has one."""
    if history.empty:
        raise StudyError("the history has no rows yet, so there is nothing to draw; finish the study with --resume")
    values = [name for name in VALUES if history[name].notna().any()]
    with styled():
        figure = new_figure(3.6 * len(values) + 0.4, 3.1)
        panels = figure.subplots(1, len(values), squeeze=False)[0]
        for panel, value in zip(panels, values, strict=True):
            draw_curves(panel, history, x, value)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5))
        if title:
            figure.suptitle(title, fontsize=10)
    return figure


def draw_curves(panel: Any, history: pd.DataFrame, x: Axis, value: str) -> None:
    """All algorithms of a study in one panel."""
    labels = [str(label) for label in history["algorithm"].unique()]
    chosen = colours(labels)
    all_curves = {label: mean_curve(history[history["algorithm"] == label], x, value) for label in labels}
    unit = unit_of(x, max(float(curve.x[-1]) for curve in all_curves.values()))
    for label, curve in all_curves.items():
        _draw(panel, curve, unit, chosen[label], label)
    measured = history.loc[history[x] > 0, x]
    _scale_x(panel, list(all_curves.values()), unit, float(measured.min()) if len(measured) else 1.0)
    _scale_y(panel, list(all_curves.values()), value)
    panel.set_xlabel(f"{AXIS_TITLES[x]}{f' ({unit.name})' if unit.name else ''}")
    panel.set_ylabel(VALUES[value])


def mean_curve(runs: pd.DataFrame, x: Axis, value: str) -> Curve:
    """Mean and σ over repetitions, on the points that they share or, failing that, on an even grid.

    Beyond the end of the shortest repetition a mean would be over fewer runs, so the curve ends there.
    """
    parts = [run.sort_values(x, kind="stable") for _, run in runs.groupby("repetition")]
    xs = [part[x].to_numpy(float) for part in parts]
    scale = 100.0 if value == "test_accuracy" else 1.0
    ys = [part[value].to_numpy(float) * scale for part in parts]
    grid = xs[0]
    if any(len(other) != len(grid) or not np.array_equal(other, grid) for other in xs[1:]):
        grid = np.linspace(max(float(a[0]) for a in xs), min(float(a[-1]) for a in xs), GRID)
    stacked = np.stack([np.interp(grid, a, b) for a, b in zip(xs, ys, strict=True)])
    std = stacked.std(axis=0, ddof=1) if len(parts) > 1 else np.zeros(len(grid))
    return Curve(grid, stacked.mean(axis=0), std)


def _draw(panel: Any, curve: Curve, unit: Unit, colour: str, label: str) -> None:
    at = curve.x / unit.size
    panel.plot(at, curve.mean, color=colour, linestyle=line_style(label), label=title_of(label), zorder=3)
    if curve.std.any():
        panel.fill_between(at, curve.mean - curve.std, curve.mean + curve.std, color=colour, alpha=0.18, linewidth=0)


def _scale_x(panel: Any, drawn: list[Curve], unit: Unit, first: float) -> None:
    ends = [float(curve.x[-1]) for curve in drawn if curve.x[-1] > 0]
    if not ends:
        return
    if max(ends) > LOG_X * min(ends) and any(np.isfinite(curve.mean[curve.x > 0]).any() for curve in drawn):
        panel.set_xscale("log")  # from the first evaluation on: before it there is nothing but a straight line
        panel.set_xlim(first / unit.size, max(ends) / unit.size)
        panel.xaxis.set_major_formatter(PLAIN)
        panel.xaxis.set_minor_formatter(NullFormatter())
    else:
        panel.set_xlim(0, max(ends) / unit.size)


def _scale_y(panel: Any, drawn: list[Curve], value: str) -> None:
    if value == "test_accuracy":
        panel.set_ylim(bottom=max(0.0, panel.get_ylim()[0]), top=min(100.0, panel.get_ylim()[1]))
        return
    means = np.concatenate([curve.mean[np.isfinite(curve.mean)] for curve in drawn])
    if len(means) == 0:
        return
    low, high = float(means.min()), float(means.max())
    if low > 0 and high > LOG_Y * low:
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)))
        panel.yaxis.set_major_formatter(PLAIN)
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_ylim(low / 1.6, high * 1.4)  # a band that reaches below 0 has no end on this axis
    elif low >= 0:
        panel.set_ylim(bottom=0)
