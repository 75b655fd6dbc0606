"""A phase diagram: how different the nodes' data is against how well the graph mixes; who wins, and by how much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from walktalk.errors import StudyError
from walktalk.plots.style import new_figure, styled

MOST = 3.0  # doublings at which the colours end
FARTHEST = 5.0  # doublings up to which a ratio is written out


def phase(tables: dict[str, pd.DataFrame], *, x: str, y: str, title: str | None = None) -> Figure:
    """One panel per table. Columns: x, y, ratio (gossip's cost over the best Multi-Walk's), winner (a short label).

    Purple: walks win; orange: gossip wins. A ratio that is not a number (neither arrived) is left white.
    """
    if not tables:
        raise StudyError("there is no table to draw")
    with styled():
        figure = new_figure(3.9 * len(tables) + 0.7, 3.5)
        panels = figure.subplots(1, len(tables), squeeze=False)[0]
        images = [_panel(panel, table) for panel, table in zip(panels, tables.values(), strict=True)]
        for panel, name in zip(panels, tables, strict=True):
            panel.set_title(name, loc="left")
            panel.set_xlabel(x)
        panels[0].set_ylabel(y)
        bar = figure.colorbar(images[0], ax=list(panels), shrink=0.9, ticks=[-3, -2, -1, 0, 1, 2, 3])
        bar.ax.set_yticklabels(["8×", "4×", "2×", "even", "2×", "4×", "8×"])
        bar.set_label("gossip wins  ←   → walks win", fontsize=8)
        if title:
            figure.suptitle(title, fontsize=10)
    return figure


def phase_grid(rows: dict[str, dict[str, pd.DataFrame]], *, x: str, y: str) -> Figure:
    """Diagrams in rows, e.g. measured above predicted, with one colour scale; tables as for `phase`."""
    if not rows:
        raise StudyError("there is no table to draw")
    columns = max(len(tables) for tables in rows.values())
    with styled():
        figure = new_figure(2.6 * columns + 1.2, 2.3 * len(rows) + 0.4)
        grid = figure.subplots(len(rows), columns, squeeze=False, sharex=True, sharey=True)
        images = []
        for places, (name, tables) in zip(grid, rows.items(), strict=True):
            for place, (title, table) in zip(places, tables.items(), strict=True):
                images.append(_panel(place, table))
                place.set_title(f"{name}: {title.lower()}", loc="left")
        for place in grid[-1]:
            place.set_xlabel(x)
        figure.supylabel(y, fontsize=9)
        bar = figure.colorbar(images[0], ax=list(grid.flat), shrink=0.8, ticks=[-3, -2, -1, 0, 1, 2, 3])
        bar.ax.set_yticklabels(["8×", "4×", "2×", "even", "2×", "4×", "8×"])
        bar.set_label("gossip wins  ←   → walks win", fontsize=8)
    return figure


def _panel(panel: Any, table: pd.DataFrame) -> Any:
    """One diagram; the image, for the colour bar."""
    columns = list(dict.fromkeys(str(value) for value in table["x"]))
    rows = sorted({float(value) for value in table["y"]})
    doublings = np.log2(table["ratio"].to_numpy(float))
    places = [(rows.index(float(y)), columns.index(str(x))) for x, y in zip(table["x"], table["y"], strict=True)]
    grid = np.full((len(rows), len(columns)), np.nan)
    for place, value in zip(places, doublings, strict=True):
        grid[place] = np.clip(value, -MOST, MOST)  # an infinite ratio too: the other never arrived
    image = panel.imshow(grid, origin="lower", aspect="auto", cmap="PuOr", vmin=-MOST, vmax=MOST)
    for row, column in set(np.ndindex(grid.shape)) - set(places):
        panel.text(column, row, "not run", ha="center", va="center", fontsize=6.5, color="#999999")
    for (row, column), value, winner in zip(places, doublings, table["winner"], strict=True):
        colour = "white" if abs(value) > 0.6 * MOST else "black"
        text = _cell(float(value), str(winner))
        panel.text(column, row, text, ha="center", va="center", fontsize=6.5, color=colour)
    panel.set_xticks(range(len(columns)), columns, fontsize=7)
    panel.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
    panel.grid(False)
    return image


def _cell(doublings: float, winner: str) -> str:
    """The winner and by how much; beyond what a colour can tell, the number is only a guess anyway."""
    if np.isnan(doublings):
        return winner
    return f"{winner}\n{2 ** abs(doublings):.1f}×" if abs(doublings) <= FARTHEST else f"{winner}\n>{2**FARTHEST:.0f}×"
