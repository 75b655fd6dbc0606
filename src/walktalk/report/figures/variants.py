"""Comparisons of settings: one value under several variants, final loss against the number of walks, and who wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
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


# -- A phase diagram: how different the nodes' data is against how well the graph mixes; who wins, and by how much ----

LEAST = 3.0  # doublings up to which the colours go at least
FARTHEST = 5.0  # doublings up to which they go at most; beyond, a ratio is not written out either
COLOURS = matplotlib.colormaps["PuOr"]


def phase(
    tables: Mapping[str, pd.DataFrame], *, x: str, y: str, title: str | None = None, notes: Sequence[str] = ()
) -> Figure:
    """Who wins over two variables, one panel per table.

    Purple: walks win; orange: gossip wins. A ratio that is not a number (neither arrived) is left white.

    Args:
        tables: by title; columns x, y, ratio (gossip's cost over the best Multi-Walk's), winner (a short label).
        x: what the axis to the right says.
        y: what the axis upwards says.
        title: of the figure.
        notes: sentences below it.
    """
    return _figure([dict(tables)], x, y, title, notes, (3.4, 2.7))


def phase_grid(rows: Mapping[str, Mapping[str, pd.DataFrame]], *, x: str, y: str, notes: Sequence[str] = ()) -> Figure:
    """Diagrams in rows, e.g. measured above predicted, with one colour scale; tables as for `phase`."""
    named = [
        {f"{name}: {title[:1].lower()}{title[1:]}": table for title, table in tables.items()}
        for name, tables in rows.items()
    ]
    return _figure(named, x, y, None, notes, (2.3, 2.15))


def _figure(
    rows: list[dict[str, pd.DataFrame]],
    x: str,
    y: str,
    title: str | None,
    notes: Sequence[str],
    size: tuple[float, float],
) -> Figure:
    """Panels in rows, a letter for each, and one colour bar."""
    if not any(rows):
        raise StudyError("there is no table to draw")
    columns = max(len(tables) for tables in rows)
    doublings = np.concatenate([np.log2(t["ratio"].to_numpy(float)) for tables in rows for t in tables.values()])
    most = _most(doublings)
    letters = iter(ascii_lowercase)
    with styled():
        figure = new_figure(size[0] * columns + 0.9, size[1] * len(rows) + 0.7)
        grid = figure.subplots(len(rows), columns, squeeze=False, sharex=True, sharey=True)
        for places, tables in zip(grid, rows, strict=True):
            for place, (name, table) in zip(places, tables.items(), strict=False):
                image = _panel(place, table, most)
                place.set_title(f"({next(letters)}) {name}", loc="left")
        for place in grid[-1]:
            place.set_xlabel(x)
        for place in grid[:, 0]:
            place.set_ylabel(y)
        _colour_bar(figure, image, list(grid.flat), most, doublings)
        if title:
            figure.suptitle(title, fontsize=10)
        note_below(figure, notes)
    return figure


def _most(doublings: Any) -> float:
    """Where the colours end: beyond the farthest ratio, as long as it can be told what that is."""
    known = np.abs(doublings[np.isfinite(doublings)])
    return float(np.clip(np.ceil(known.max(initial=0.0)), LEAST, FARTHEST))


def _colour_bar(figure: Figure, image: Any, places: list[Any], most: float, doublings: Any) -> None:
    """How many times, with an arrow on the side where something lies beyond the end."""
    low, high = bool((doublings < -most).any()), bool((doublings > most).any())
    extend = {(True, True): "both", (True, False): "min", (False, True): "max", (False, False): "neither"}[low, high]
    ticks = np.arange(-int(most), int(most) + 1)
    bar = figure.colorbar(image, ax=places, shrink=0.9, ticks=ticks, extend=extend, aspect=24)
    bar.ax.set_yticklabels(["even" if tick == 0 else f"{2 ** abs(tick)}×" for tick in ticks])
    bar.set_label("← gossip wins       walks win →")


def _panel(panel: Any, table: pd.DataFrame, most: float) -> Any:
    """One diagram; the image, for the colour bar."""
    columns = list(dict.fromkeys(str(value) for value in table["x"]))
    rows = sorted({float(value) for value in table["y"]})
    doublings = np.log2(table["ratio"].to_numpy(float))
    places = [(rows.index(float(y)), columns.index(str(x))) for x, y in zip(table["x"], table["y"], strict=True)]
    grid = np.full((len(rows), len(columns)), np.nan)
    for place, value in zip(places, doublings, strict=True):
        grid[place] = np.clip(value, -most, most)  # an infinite ratio too: the other never arrived
    scale = Normalize(-most, most)
    image = panel.imshow(grid, origin="lower", aspect="auto", cmap=COLOURS, norm=scale)
    for row, column in set(np.ndindex(grid.shape)) - set(places):
        panel.text(column, row, "not run", ha="center", va="center", fontsize=7, color="#888888")
    for (row, column), value, winner in zip(places, doublings, table["winner"], strict=True):
        look: Any = {"ha": "center", "va": "center", "fontsize": 7, "color": readable_on(COLOURS(scale(value)))}
        panel.text(column, row, _cell(float(value), str(winner)), **look)
    panel.set_xticks(range(len(columns)), columns, fontsize=7.5)
    panel.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
    panel.grid(False)
    return image


def readable_on(colour: Any) -> str:
    """Black or white, whichever stands out more against this colour (WCAG's relative luminance)."""
    channels = np.asarray(colour[:3], dtype=float)
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ [0.2126, 0.7152, 0.0722])
    return "white" if (1.05 / (luminance + 0.05)) > (luminance + 0.05) / 0.05 else "black"


def _cell(doublings: float, winner: str) -> str:
    """The winner and by how much; beyond what a colour can tell, the number is only a guess anyway."""
    if np.isnan(doublings):
        return winner
    return f"{winner}\n{2 ** abs(doublings):.1f}×" if abs(doublings) <= FARTHEST else f"{winner}\n>{2**FARTHEST:.0f}×"
