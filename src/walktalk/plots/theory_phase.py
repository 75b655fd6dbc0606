"""A phase diagram: how different the nodes' data is against how well the graph mixes; who wins, and by how much."""

from __future__ import annotations

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
        image = None
        for panel, (name, table) in zip(panels, tables.items(), strict=True):
            columns = list(dict.fromkeys(table["x"]))
            rows = sorted(set(table["y"]))
            grid = np.full((len(rows), len(columns)), np.nan)
            for row in table.itertuples():
                grid[rows.index(row.y), columns.index(row.x)] = np.log2(row.ratio)
            image = panel.imshow(
                np.clip(grid, -MOST, MOST), origin="lower", aspect="auto", cmap="PuOr", vmin=-MOST, vmax=MOST
            )
            for row in table.itertuples():
                dark = abs(np.log2(row.ratio)) > 0.7 * MOST
                panel.text(
                    columns.index(row.x), rows.index(row.y), _cell(row.ratio, row.winner), ha="center", va="center",
                    fontsize=6.5, color="white" if dark else "black",
                )  # fmt: skip
            panel.set_xticks(range(len(columns)), [str(c) for c in columns], fontsize=7)
            panel.set_yticks(range(len(rows)), [f"{r:g}" for r in rows])
            panel.grid(False)
            panel.set_title(name, loc="left")
            panel.set_xlabel(x)
        panels[0].set_ylabel(y)
        bar = figure.colorbar(image, ax=list(panels), shrink=0.9, ticks=[-3, -2, -1, 0, 1, 2, 3])
        bar.ax.set_yticklabels(["8×", "4×", "2×", "even", "2×", "4×", "8×"])
        bar.set_label("gossip wins  ←   → walks win", fontsize=8)
        if title:
            figure.suptitle(title, fontsize=10)
    return figure


def _cell(ratio: float, winner: str) -> str:
    if not np.isfinite(ratio):
        return winner
    return f"{winner}\n{max(ratio, 1 / ratio):.1f}×"
