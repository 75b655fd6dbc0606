"""A phase diagram: how different the nodes' data is against how well the graph mixes; who wins, and by how much."""

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
from walktalk.report.figures.style import new_figure, note_below, styled

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
