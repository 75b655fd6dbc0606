"""Figures of theory: measured averages of ‖∇f‖² beside their bounds, how they grow, and speed-ups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from walktalk.protocols import AsyncGossip, Described, MultiWalk, Protocol, described, known, together
from walktalk.report.figures.axes import log_axis, ticks_at
from walktalk.report.figures.style import ANY_WALKS, GREY, legend_below, line_style, new_figure, note_below, styled

MATRIX, PAIRWISE = AsyncGossip("matrix"), AsyncGossip("pairwise")  # Theorem 2's gossip, and the one that people run
MARKS = {"cycle": "o", "complete": "s", "": "D"}  # empty: the graph is what changes along the line
OTHERS = "^vPX*"
DOTTED: Any = (0, (1, 1.2))  # a bound, in every figure
BOUND_WIDTH = 1.2
MARK_SIZE = 4.0
GRAPHS = {"cycle": "cycle", "complete": "complete graph", "": "cycle to complete graph"}  # as a legend names them


class Look(NamedTuple):
    """How a series is drawn: its algorithm's colour and line, as in every figure, and a mark for its graph."""

    algorithm: Described
    graph: str  # empty if none is named
    colour: str
    line: Any
    mark: str
    fill: str  # of the mark: on the complete graph it is empty, and so told apart in grey

    @property
    def title(self) -> str:
        return self.algorithm.heading


def looks(names: Iterable[str], gossip: Protocol) -> dict[str, Look]:
    """The looks of series such as "MW R=8, cycle" and "gossip, complete"; `gossip`: what is called so."""
    names = [str(name) for name in names]
    found_in = {name: _algorithm(name, gossip) for name in names}
    chosen = together({one.label: one for one in found_in.values()}.values())
    graphs = {name: _graph(name) for name in names}
    others = dict(zip((graph for graph in dict.fromkeys(graphs.values()) if graph not in MARKS), OTHERS, strict=False))
    found = {}
    for name in names:
        algorithm, graph = chosen[found_in[name].label], graphs[name]
        colour = algorithm.colour
        mark = MARKS.get(graph, others.get(graph, "o"))
        fill = "white" if graph == "complete" else colour
        found[name] = Look(algorithm, graph, colour, line_style(algorithm.family), mark, fill)
    return found


def _algorithm(name: str, gossip: Protocol) -> Described:
    """Whose series it is; one of walks without their number is for any."""
    walks = re.search(r"R=(\d+)", name)
    if "gossip" not in name.lower() and not walks:
        return ANY_WALKS
    protocol = MultiWalk(int(walks[1])) if walks else MATRIX if "matrix" in name else gossip
    return described(protocol.label, protocol)


def _graph(name: str) -> str:
    """What stands behind the algorithm: "cycle" in "MW R=8, cycle", nothing in "Multi-Walk, R=8"."""
    behind = name.rpartition(", ")[2] if ", " in name else ""
    return "" if "R=" in behind else behind


def handles_of(found: Mapping[str, Look], more: Sequence[Line2D] = ()) -> list[Line2D]:
    """A legend's lines: algorithms by colour and line, then `more`, then graphs by mark."""
    each = {look.algorithm.label: look.algorithm for look in found.values()}
    ordered = known(each, each).values()
    graphs = dict.fromkeys(look.graph for look in found.values())
    lines = [Line2D([], [], color=x.colour, linestyle=line_style(x.family), label=x.heading) for x in ordered]
    return [*lines, *more, *(_graph_handle(graph) for graph in GRAPHS if graph in graphs)]


def bound_handle() -> Line2D:
    return Line2D([], [], color="#444444", linestyle=DOTTED, linewidth=BOUND_WIDTH, label="bound, same colour")


def _graph_handle(graph: str) -> Line2D:
    look: Any = {"marker": MARKS[graph], "markerfacecolor": "white" if graph == "complete" else "#444444"}
    return Line2D([], [], color="#444444", linestyle="", markersize=MARK_SIZE, label=GRAPHS[graph], **look)


# -- the running average of ‖∇f‖² beside its bound --------------------------------------------------------------------

GRADIENT = "Average of ‖∇f‖²"


def bound_curves(table: pd.DataFrame, *, title: str | None = None, notes: Sequence[str] = ()) -> Figure:
    """What was measured beside its bound, over iterations. Bounds are dotted, in the colour of what they bound.

    Args:
        table: columns series, iteration, measured, bound.
        title: of the figure.
        notes: sentences below it.
    """
    with styled():
        figure = new_figure(4.8, 3.9)
        panel = figure.subplots()
        for name, look in looks(table["series"].unique(), MATRIX).items():
            part = table[table["series"] == name]
            panel.plot(part["iteration"], part["measured"], color=look.colour, linestyle=look.line, label=look.title)
            panel.plot(part["iteration"], part["bound"], color=look.colour, linestyle=DOTTED, linewidth=BOUND_WIDTH)
        log_axis(panel.xaxis, table["iteration"].min(), table["iteration"].max())
        values = table[["measured", "bound"]]
        log_axis(panel.yaxis, values.min().min() / 1.5, values.max().max() * 1.5)
        panel.set_xlabel("Iterations T")
        panel.set_ylabel(f"{GRADIENT} over T iterations")
        handles, labels = panel.get_legend_handles_labels()
        legend_below(figure, [*handles, bound_handle()], [*labels, str(bound_handle().get_label())])
        note_below(figure, notes)
        if title:
            panel.set_title(title, loc="left")
    return figure


# -- how it and its bound grow with T, R, V and p: measured exponents beside the bound's ------------------------------

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
    """A number as text, with a minus sign in place of a hyphen."""
    return f"{value:+.2f}".replace("-", "−")


# -- how many times faster R walks, or gossip on V nodes, are than one walk -------------------------------------------


def speed_up_figure(table: pd.DataFrame, *, notes: Sequence[str] = ()) -> Figure:
    """Columns: series, active (R or V), speed_up. The grey line is the linear speed-up that theory promises."""
    with styled():
        figure = new_figure(4.8, 4.1)
        panel = figure.subplots()
        most = float(table["active"].max())
        (linear,) = panel.plot([1.0, most], [1.0, most], color=GREY, linewidth=0.9, label="linear")
        found = looks(table["series"].unique(), PAIRWISE)
        for name, look in found.items():
            series = table[table["series"] == name]
            draw_series(panel, series["active"], series["speed_up"], look)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        doublings = [2.0**k for k in range(int(most).bit_length())]
        ticks_at(panel.xaxis, doublings)
        ticks_at(panel.yaxis, doublings)
        panel.set_xlabel("Models that train at once (R walks or V nodes)")
        panel.set_ylabel("Speed-up over one walk (times)")
        handles = handles_of(found, [linear])
        legend_below(figure, handles, [str(handle.get_label()) for handle in handles])
        note_below(figure, notes)
    return figure
