"""What a reader has to know and the axes do not say: small print below a figure, and the legend above it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

SMALL = 7.5  # points
OPENING = "The axis of the accuracy opens up toward 100 %."
LINE = 1.35 * SMALL / 72  # inches from one line of the note to the next
GAP = 0.1  # inches above the legend
LETTER = 0.54 * SMALL / 72  # inches that a letter takes, on average
LEGEND_LETTER, LEGEND_HANDLE = 0.062, 0.56  # inches: a letter of the legend, and a line with the gaps around it
LEGEND_ROW, ROWS = 0.19, 5  # inches from one row of it to the next; rows for which a figure has room as it is


def note_below(figure: Figure, sentences: Iterable[str], *, legends: bool = True) -> None:
    """Write sentences below everything else; below the legend too, unless that stands above."""
    text = " ".join(sentence for sentence in sentences if sentence)
    if not text:
        return
    width, height = figure.get_size_inches()
    together = re.sub(r" (?=[=±%])|(?<=[=±]) ", "\u00a0", text)  # no line ends within "α = 1" or "75 %"
    lines = textwrap.wrap(together, int((width - 0.2) / LETTER), break_on_hyphens=False)
    room = (len(lines) * LINE + 0.08) / height
    below = room
    for legend in figure.legends if legends else []:  # one that is moved up has no place kept for it by the layout
        canvas: Any = figure.canvas
        tall = legend.get_window_extent(canvas.get_renderer()).height / figure.dpi / height
        legend.set_bbox_to_anchor((0, room, 1, 1 - room), transform=figure.transFigure)
        below = max(below, room + tall + GAP / height)
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, below, 1, 1 - below))
    look: Any = {"fontsize": SMALL, "color": "#444444", "linespacing": 1.25}
    figure.text(0.1 / width, 0.04 / height, "\n".join(lines), ha="left", va="bottom", gid="note", **look)


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """One legend for all panels, in as few rows as the width allows; many of them make the figure taller."""
    width, height = figure.get_size_inches()
    columns = legend_columns(labels, float(width))
    rows = -(-len(labels) // columns)
    if rows > ROWS:
        figure.set_size_inches(width, height + LEGEND_ROW * (rows - ROWS))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, columnspacing=1.6)


def legend_columns(labels: Sequence[str], width: float) -> int:
    """How many columns fit, but no more than that many rows need; the first ones hold most."""
    for columns in range(len(labels), 1, -1):
        parts = np.array_split([len(label) for label in labels], columns)
        if sum(LEGEND_HANDLE + LEGEND_LETTER * int(part.max()) for part in parts) <= width:
            rows = -(-len(labels) // columns)
            return -(-len(labels) // rows)
    return 1


def upright(colour: str) -> Line2D:
    """What stands in a legend for a line across a panel from bottom to top."""
    return Line2D([], [], color=colour, linestyle="", marker="|", markersize=11, markeredgewidth=1.0)


def spread_words(histories: Iterable[pd.DataFrame], logarithmic: bool = False) -> str:
    """What line and band are, with the number of repetitions that there really are."""
    counts = [int(runs["repetition"].nunique()) for one in histories for _, runs in one.groupby("algorithm")]
    if not counts or max(counts) == 1:
        return "One repetition."
    many = f"{max(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    below = ", as far down as up where the axis is logarithmic" if logarithmic else ""
    return f"Line and band: mean ± σ over {many} repetitions{below}."


def missing_words(histories: Iterable[pd.DataFrame], value: str = "train_loss") -> str:
    """How many evaluations could not be drawn; nothing if none."""
    losses = np.concatenate([np.zeros(0), *(one[value].to_numpy(float) for one in histories)])
    missing = int((~np.isfinite(losses)).sum())
    if missing == 0:
        return ""
    verbs = ("was", "is") if missing == 1 else ("were", "are")
    return f"{missing:,} of {len(losses):,} evaluations {verbs[0]} not a number and {verbs[1]} left out of the means."
