"""How the average of ‖∇f‖² and its bound grow with T, R, V and p: measured exponents beside the bound's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from walktalk.plots.notes import legend_below, note_below
from walktalk.plots.scales import log_axis, ticks_at
from walktalk.plots.style import ANY_WALKS, new_figure, styled
from walktalk.plots.theory_bound import GRADIENT
from walktalk.plots.theory_series import BOUND_WIDTH, DOTTED, MARK_SIZE, MATRIX, Look, bound_handle, handles_of, looks
from walktalk.protocols import MultiWalk

NAMES = {"T": "Iterations T", "R": "Walks R", "V": "Nodes V", "p": "Spectral gap p"}
SIGNS = {"o": "●", "s": "□", "D": "◆"}  # a graph's mark as a letter, for the exponents beside a panel
ROOM = 0.052  # of a panel's height that an exponent beside it needs


class Exponent(NamedTuple):
    """A slope to write beside a panel."""

    place: float  # of the line's end, as a share of the panel's height
    text: str
    colour: str


def scaling(
    table: pd.DataFrame, slopes: pd.DataFrame, *, titles: Mapping[str, str] | None = None, notes: Sequence[str] = ()
) -> Figure:
    """How costs grow with one variable after the other, a panel each, measured and by their bounds.

    Args:
        table: columns variable, series, x, measured, bound.
        slopes: columns variable, series, measured, bound: the exponents.
        titles: what is held fixed while a variable changes.
        notes: sentences below the figure.
    """
    variables = list(dict.fromkeys(table["variable"]))
    columns = min(2, len(variables))
    rows = -(-len(variables) // columns)
    with styled():
        figure = new_figure(3.6 * columns, 2.75 * rows + 0.9)
        panels = figure.subplots(rows, columns, squeeze=False)
        for letter, panel, variable in zip(ascii_lowercase, panels.flat, variables, strict=False):
            _panel(panel, table[table["variable"] == variable], slopes[slopes["variable"] == variable])
            panel.set_xlabel(NAMES.get(variable, variable))
            panel.set_title(f"({letter}) {(titles or {}).get(variable, variable)}", loc="left")
        for panel in panels.flat[len(variables) :]:
            panel.set_visible(False)
        for panel in panels[:, 0]:
            panel.set_ylabel(GRADIENT)
        handles = handles_of(looks(table["series"].unique(), MATRIX), [bound_handle()])
        legend_below(figure, handles, [str(handle.get_label()) for handle in handles])
        figure.align_ylabels()
        note_below(figure, notes)
    return figure


def _panel(panel: Any, part: pd.DataFrame, slopes: pd.DataFrame) -> None:
    values = part[["measured", "bound"]]
    low, high = values.min().min() / 1.6, values.max().max() * 1.6
    log_axis(panel.yaxis, low, high)
    panel.set_xscale("log")
    exponents = []
    for name, look in looks(part["series"].unique(), MATRIX).items():
        series = part[part["series"] == name]
        draw_series(panel, series["x"], series["measured"], look)
        dots: Any = {"linestyle": DOTTED, "linewidth": BOUND_WIDTH, "marker": look.mark, "markersize": MARK_SIZE - 1}
        last = [len(series) - 1]  # one mark at the end says which graph a bound is for
        panel.plot(series["x"], series["bound"], color=look.colour, markerfacecolor=look.fill, markevery=last, **dots)
        fit = slopes[slopes["series"] == name].iloc[0]
        text = f"{SIGNS.get(look.mark, '')} {signed(fit['measured'])} ({signed(fit['bound'])})"
        place = np.log(series["measured"].iloc[-1] / low) / np.log(high / low)
        exponents.append(Exponent(float(place), text, look.colour))
    if (part["x"] == part["x"].round()).all():
        ticks_at(panel.xaxis, part["x"].tolist())
    else:
        log_axis(panel.xaxis, part["x"].min() / 1.15, part["x"].max() * 1.15)
    for exponent, y in zip(exponents, apart([one.place for one in exponents], ROOM), strict=True):
        panel.text(1.02, y, exponent.text, transform=panel.transAxes, va="center", fontsize=7, color=exponent.colour)


def draw_series(panel: Any, x: Any, y: Any, look: Look) -> None:
    """A measured line; where R changes along it, every mark has the colour of its R."""
    panel.plot(
        x,
        y,
        color=look.colour,
        linestyle=look.line,
        marker=look.mark,
        markerfacecolor=look.fill,
        markersize=MARK_SIZE,
        label="_",
        zorder=3,
    )
    if look.algorithm == ANY_WALKS:
        for at, value in zip(x, y, strict=True):
            colour = MultiWalk(int(at)).colour or look.colour
            fill = "white" if look.fill == "white" else colour
            panel.plot(at, value, look.mark, color=colour, markerfacecolor=fill, markersize=MARK_SIZE, zorder=4)


def apart(places: Sequence[float], least: float) -> list[float]:
    """Places as near as possible to these, in the same order, no two nearer than `least`."""
    order = np.argsort(places, kind="stable")
    moved = np.asarray(places, dtype=float)[order]
    for _ in range(200):  # a pair that is too close is pushed apart, until none is
        gaps = np.diff(moved)
        if not (gaps < least - 1e-9).any():
            break
        for k in np.flatnonzero(gaps < least - 1e-9):
            push = (least - (moved[k + 1] - moved[k])) / 2
            moved[k], moved[k + 1] = moved[k] - push, moved[k + 1] + push
    found = np.empty_like(moved)
    found[order] = moved
    return [float(place) for place in found]


def signed(value: float) -> str:
    """With a minus sign, not a hyphen."""
    return f"{value:+.2f}".replace("-", "−")
