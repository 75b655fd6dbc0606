"""Comparisons of settings: one value under several variants, and final loss against the number of walks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from walktalk.core.errors import StudyError
from walktalk.protocols import Described, known
from walktalk.report.figures.axes import ticks_at
from walktalk.report.figures.style import (
    ANY_WALKS,
    GREY,
    Algorithms,
    legend_below,
    line_style,
    missing_words,
    new_figure,
    note_below,
    styled,
    upright,
)

WIDTH = 0.8  # of a variant's place that its algorithms share
PALE = 0.4  # opacity of a bar that repeats another


def variants(
    panels: Mapping[str, pd.DataFrame],
    *,
    value: str,
    y: str,
    names: Mapping[str, str],
    notes: Sequence[str] = (),
    algorithms: Algorithms | None = None,
) -> Figure:
    """Bars of several variants of the same runs, a panel per table.

    A bar is the mean over runs, with its standard deviation where there are several; what was not run has none. Rows
    with `repeated` set are another variant's, and their bars pale.

    Args:
        panels: by title, tables with columns algorithm, variant and the value, one row a run.
        value: the column that is drawn.
        y: what its axis says.
        names: of the variants, in their order.
        notes: sentences below the figure.
        algorithms: What the study's folder says of its algorithms; their labels alone say it if left out.
    """
    if not panels:
        raise StudyError("there is no table to draw")
    found = known((str(label) for table in panels.values() for label in table["algorithm"]), algorithms)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with styled():
        figure = new_figure(3.6 * columns, 2.3 * rows + 0.8)
        places = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for letter, place, (title, table) in zip(ascii_lowercase, places.flat, panels.items(), strict=False):
            for k, (label, one) in enumerate(found.items()):
                at = (k - (len(found) - 1) / 2) * WIDTH / len(found)
                _bars(place, table[table["algorithm"] == label], value, list(names), at, WIDTH / len(found), one)
            place.set_xticks(range(len(names)), list(names.values()), fontsize=8)
            place.set_title(f"({letter}) {title}", loc="left")
            place.grid(axis="x", visible=False)
        for place in places.flat[len(panels) :]:
            place.set_visible(False)
        for place in places[:, 0]:
            place.set_ylabel(y)
        legend_below(figure, *places[0, 0].get_legend_handles_labels())
        note_below(figure, (_spread(list(panels.values())), *notes, missing_words(panels.values(), value)))
    return figure


def _bars(
    place: Any, runs: pd.DataFrame, value: str, names: list[str], shift: float, width: float, algorithm: Described
) -> None:
    """An algorithm's bar in each variant."""
    found = [runs[runs["variant"] == name] for name in names]
    at = np.arange(len(names)) + shift
    means = [float(one[value].mean()) if one[value].notna().any() else np.nan for one in found]
    spread = [float(one[value].std(ddof=1)) if one[value].notna().sum() > 1 else 0.0 for one in found]
    bars = place.bar(at, means, width, color=algorithm.colour, label=algorithm.heading)
    if any(spread):
        place.errorbar(at, means, spread, fmt="none", ecolor="black", elinewidth=0.8, capsize=1.5)
    for bar, one in zip(bars, found, strict=True):
        if algorithm.family == "gossip":
            bar.set_hatch("///")  # families can be told apart in grey
            bar.set_edgecolor("white")
        if "repeated" in one and one["repeated"].any():
            bar.set_alpha(PALE)


def _spread(tables: Sequence[pd.DataFrame]) -> str:
    """What a bar is, with the number of runs that there really are."""
    counts = [len(runs) for table in tables for _, runs in table.groupby(["algorithm", "variant"])]
    if not counts or max(counts) == 1:
        return "One repetition."
    many = f"{max(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return f"Bars: mean ± σ over {many} repetitions."


# -- final loss against the number of walks: from how many on is gossip better? ---------------------------------------


def threshold(
    ends: pd.DataFrame,
    crossover: float,
    *,
    value: str = "train_loss",
    y: str = "Final training loss",
    notes: Sequence[str] = (),
    algorithms: Algorithms | None = None,
) -> Figure:
    """How runs of Multi-Walk ended, over the number of walks, beside gossip's.

    Args:
        ends: columns algorithm, repetition and the value at a run's end.
        crossover: the R at which theory has both even.
        value: the column that is drawn.
        y: what its axis says.
        notes: sentences below the figure.
        algorithms: What the study's folder says of its algorithms; their labels alone say it if left out.
    """
    found = known((str(label) for label in ends["algorithm"]), algorithms).values()
    of = {one.label: ends.loc[ends["algorithm"] == one.label, value].dropna() for one in found}
    walks = {int(one.settings["walks"]): one for one in found if "walks" in one.settings and len(of[one.label])}
    if not walks:
        raise StudyError("there is no run of Multi-Walk that ended with a number, so there is nothing to draw")
    with styled():
        figure = new_figure(4.6, 3.7)
        panel = figure.subplots()
        means = [float(of[one.label].mean()) for one in walks.values()]
        look: Any = {"color": ANY_WALKS.colour, "linewidth": 1.0, "zorder": 2, "label": ANY_WALKS.heading}
        panel.plot(list(walks), means, **look)
        for count, one in walks.items():
            runs = of[one.label]
            spread = float(runs.std(ddof=1)) if len(runs) > 1 else None
            look = {"fmt": "o", "markersize": 4, "capsize": 3, "ecolor": "black", "elinewidth": 0.8, "zorder": 3}
            panel.errorbar(count, float(runs.mean()), spread, color=one.colour, **look)
        for one in sorted((one for one in found if one.family == "gossip"), key=lambda one: one.label):
            _level(panel, one, of[one.label])
        panel.axvline(crossover, color=GREY, linewidth=1.0, zorder=1)
        panel.set_xscale("log")
        panel.set_ylim(bottom=0)
        ticks_at(panel.xaxis, [float(count) for count in walks])
        panel.set_xlabel("Walks R")
        panel.set_ylabel(y)
        handles, labels = panel.get_legend_handles_labels()
        legend_below(figure, [*handles, upright(GREY)], [*labels, f"√(V/p) = {crossover:.1f}"])
        note_below(figure, notes)
    return figure


def _level(panel: Any, one: Described, runs: pd.Series[float]) -> None:
    """Gossip has no R: a line across, and its band."""
    colour, mean = one.colour, float(runs.mean())
    spread = float(runs.std(ddof=1)) if len(runs) > 1 else 0.0
    if np.isfinite(mean):
        panel.axhspan(mean - spread, mean + spread, color=colour, alpha=0.18, linewidth=0)
        panel.axhline(mean, color=colour, linestyle=line_style(one.family), label=one.heading)
