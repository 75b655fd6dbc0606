"""Theory beside measurement: the running average of ‖∇f‖² and its bound, scaling in one quantity, the speed-up."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from walktalk.plots.curves import PLAIN
from walktalk.plots.style import colours, new_figure, styled

MARKS = "osD^vPX*"
MATRIX, PAIRWISE = "async_gossip-matrix", "async_gossip-pairwise"  # Theorem 2's gossip, and the one that people run


class Look(NamedTuple):
    """How a series is drawn: its algorithm's colour, as in every figure, and a mark for its graph."""

    colour: str
    mark: str
    fill: str  # of the mark: empty ones are told apart in grey


def looks(names: Any, gossip: str) -> dict[str, Look]:
    """For series such as "MW R=8, cycle" and "gossip, complete"; `gossip`: the label of what is called so."""
    names = [str(name) for name in names]
    graphs = list(
        dict.fromkeys(name.partition(", ")[2] if "R=" not in name.partition(", ")[2] else "" for name in names)
    )
    labels = {name: _label(name, gossip) for name in names}
    chosen = colours(labels.values())
    found = {}
    for name in names:
        place = next((k for k, graph in enumerate(graphs) if graph and name.endswith(graph)), 0)
        colour = chosen[labels[name]]
        found[name] = Look(colour, MARKS[place % len(MARKS)], "white" if place else colour)
    return found


def _label(name: str, gossip: str) -> str:
    """The algorithm's label, as a study would give it."""
    if "gossip" in name.lower():
        return MATRIX if "matrix" in name else gossip
    walks = re.search(r"R=(\d+)", name)
    return f"multi_walk-{walks[1] if walks else 1}"


NAMES = {"T": "iterations T", "R": "walks R", "V": "nodes V", "p": "spectral gap p"}


def bound_curves(table: pd.DataFrame, *, title: str | None = None) -> Figure:
    """Columns: series, iteration, measured, bound. Measured lines are solid, bounds dotted in the same colour."""
    with styled():
        figure = new_figure(5.6, 3.6)
        panel = figure.subplots()
        look = looks(table["series"].unique(), MATRIX)
        for name, part in table.groupby("series", sort=False):
            colour = look[str(name)].colour
            panel.plot(part["iteration"], part["measured"], color=colour, label=str(name))
            panel.plot(part["iteration"], part["bound"], color=colour, linestyle=(0, (1, 1.2)), linewidth=1.4)
        panel.plot([], [], color="#444444", label="measured")
        panel.plot([], [], color="#444444", linestyle=(0, (1, 1.2)), label="bound")
        _log_log(panel)
        panel.set_xlabel("Iterations T")
        panel.set_ylabel("average of ‖∇f‖² over T")
        figure.legend(loc="outside right upper")
        if title:
            panel.set_title(title, loc="left")
    return figure


def scaling(table: pd.DataFrame, slopes: pd.DataFrame) -> Figure:
    """Columns: variable, series, x, measured, bound; `slopes`: variable, series, measured, bound (exponents)."""
    variables = list(dict.fromkeys(table["variable"]))
    with styled():
        figure = new_figure(3.3 * len(variables), 3.9)
        panels = figure.subplots(1, len(variables), squeeze=False)[0]
        for panel, variable in zip(panels, variables, strict=True):
            _scaling_panel(panel, table[table["variable"] == variable], slopes[slopes["variable"] == variable])
            panel.set_xlabel(NAMES.get(variable, variable))
        panels[0].set_ylabel("average of ‖∇f‖²")
    return figure


def _scaling_panel(panel: Any, part: pd.DataFrame, slopes: pd.DataFrame) -> None:
    look = looks(part["series"].unique(), MATRIX)
    for name, series in part.groupby("series", sort=False):
        colour, mark, fill = look[str(name)]
        fit = slopes[slopes["series"] == name].iloc[0]
        label = f"{name}: {fit['measured']:+.2f} (bound {fit['bound']:+.2f})"
        panel.plot(
            series["x"], series["measured"], color=colour, marker=mark, markerfacecolor=fill, markersize=3.5,
            label=label,
        )  # fmt: skip
        panel.plot(series["x"], series["bound"], color=colour, linestyle=(0, (1, 1.2)), linewidth=1.2)
    _log_log(panel)
    panel.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), handlelength=1.6)


def speed_up_figure(table: pd.DataFrame) -> Figure:
    """Columns: series, active (R or V), speed_up. The dashed line is the linear speed-up that theory promises."""
    with styled():
        figure = new_figure(4.6, 3.6)
        panel = figure.subplots()
        ends = np.array([1.0, float(table["active"].max())])
        panel.plot(ends, ends, color="#999999", linestyle=(0, (5, 2)), label="linear")
        look = looks(table["series"].unique(), PAIRWISE)
        for name, series in table.groupby("series", sort=False):
            colour, mark, fill = look[str(name)]
            panel.plot(
                series["active"], series["speed_up"], color=colour, marker=mark, markerfacecolor=fill, markersize=4.5,
                label=str(name),
            )  # fmt: skip
        _log_log(panel, base=2)
        panel.set_xlabel("models that train at once (R walks, V nodes)")
        panel.set_ylabel("speed-up over one walk")
        figure.legend(loc="outside right upper")
    return figure


def _log_log(panel: Any, base: int = 10) -> None:
    panel.set_xscale("log", base=base)
    panel.set_yscale("log", base=base)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(PLAIN)
        axis.set_minor_formatter(NullFormatter())
