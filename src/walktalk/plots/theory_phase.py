"""A phase diagram: how different the nodes' data is against how well the graph mixes; who wins, and by how much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from walktalk.errors import StudyError
from walktalk.plots.style import new_figure, styled

MOST = 3.0  # doublings at which the colours end


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


def _panel(panel: Any, table: pd.DataFrame) -> Any:
    """One diagram; the image, for the colour bar."""
    columns = list(dict.fromkeys(str(value) for value in table["x"]))
    rows = sorted({float(value) for value in table["y"]})
    doublings = np.log2(table["ratio"].to_numpy(float))
    places = [(rows.index(float(y)), columns.index(str(x))) for x, y in zip(table["x"], table["y"], strict=True)]
    grid = np.full((len(rows), len(columns)), np.nan)
    for place, value in zip(places, doublings, strict=True):
        grid[place] = np.clip(value, -MOST, MOST)
    image = panel.imshow(grid, origin="lower", aspect="auto", cmap="PuOr", vmin=-MOST, vmax=MOST)
    for (row, column), value, winner in zip(places, doublings, table["winner"], strict=True):
        colour = "white" if abs(value) > 0.7 * MOST else "black"
        text = _cell(float(value), str(winner))
        panel.text(column, row, text, ha="center", va="center", fontsize=6.5, color=colour)
    panel.set_xticks(range(len(columns)), columns, fontsize=7)
    panel.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
    panel.grid(False)
    return image


def _cell(doublings: float, winner: str) -> str:
    return f"{winner}\n{2 ** abs(doublings):.1f}×" if np.isfinite(doublings) else winner
