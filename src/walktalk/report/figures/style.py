"""How every figure looks: one colour and one line style per algorithm everywhere, readable without colour vision.

Which those are, the algorithms say themselves (`walktalk.protocols`), or a study's folder where they are not at hand.
Colours are those of Okabe and Ito (2008) and Tol's muted set. Figures are drawn without pyplot, so no window opens and
nothing is global; the bytes of a file depend on what is drawn only.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from walktalk.protocols import Described, known
from walktalk.records import replacing

Algorithms: TypeAlias = Mapping[str, Described]  # by label, as a study's folder says it

ANY_WALKS = Described("", "multi_walk", "any number of walks", "walks", "#4D4D4D")
"""A line on which the number of walks changes; its marks have the colours of their number."""

LINES: dict[str, Any] = {"walks": "-", "gossip": (0, (5, 1.6)), "reference": (0, (1, 1.4))}
GREY = "#777777"  # what is no algorithm: failures, references
WALK_COLOURS = (  # of the walks of one run, by number, in a time line
    "#0072B2",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#332288",
    "#117733",
    "#882255",
    "#999933",
    "#44AA99",
    "#AA4499",
    "#6699CC",
    "#661100",
    "#666666",
    "#000000",
)
DPI = 300  # what journals ask of a picture with lines and text
LARGEST_PDF = 100_000  # bytes of a vector file that is kept beside results

STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it is the same everywhere
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "xtick.direction": "out",
    "ytick.direction": "out",
    "svg.hashsalt": "walktalk",  # else element names in SVG are random
    "pdf.fonttype": 42,  # letters as TrueType: printers refuse matplotlib's own Type 3
    "savefig.facecolor": "white",
    "figure.autolayout": False,  # each figure says itself how it is laid out
    "figure.constrained_layout.use": False,
}


def styled() -> Any:
    """A context in which everything is drawn in this style."""
    return matplotlib.rc_context(STYLE)


def colours(labels: Iterable[str], algorithms: Algorithms | None = None) -> dict[str, str]:
    """A colour for each algorithm: its own, or one that is free, by name; none twice while there are enough."""
    return {label: one.colour for label, one in known(labels, algorithms).items()}


def line_style(family: str) -> Any:
    """Solid for walks, dashed for gossip, dotted for the reference: families can be told apart in grey."""
    return LINES.get(family, (0, (4, 1.2, 1, 1.2)) if family and family != "other" else "-")


def in_order(labels: Iterable[str], algorithms: Algorithms | None = None) -> list[str]:
    """Labels as every legend lists them: walks by their number, anything else, gossip, and the reference last."""
    return list(known(labels, algorithms))


def title_of(label: str, algorithms: Algorithms | None = None) -> str:
    """What people call an algorithm, as it begins a line: "4 walks", "Gossip in pairs"; the label if nobody knows."""
    return known([label], algorithms)[label].heading


class Shown(Figure):
    """A figure that a notebook shows as a picture also where nobody has said `%matplotlib inline`."""

    def _repr_png_(self) -> bytes:
        picture = BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that lays itself out."""
    figure = Shown(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: str | PathLike[str], formats: Iterable[str] = ("png", "svg")) -> list[Path]:
    """Write the figure under this name as PNG and SVG (or PDF), without a date: equal figures are equal bytes.

    Args:
        figure: The figure.
        path: Where, without an ending.
        formats: Endings: png, svg or pdf.
    """
    written = []
    _lay_out(figure)
    for kind in formats:
        file = Path(path).with_name(f"{Path(path).name}.{kind}")
        with replacing(file) as part, styled():
            figure.savefig(part, format=kind, dpi=DPI, metadata=_METADATA[kind])
        written.append(file)
    return written


def _lay_out(figure: Figure) -> None:
    """Once, as for a picture: `savefig` draws all of it for that, in each format again."""
    engine, shown = figure.get_layout_engine(), figure.dpi
    if engine is None:
        return
    with styled():
        figure.dpi = DPI
        engine.execute(figure)
        figure.dpi = shown
        figure.set_layout_engine(None)


_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def save_for_print(figure: Figure, path: str | PathLike[str]) -> list[Path]:
    """As PNG, and as PDF where that is small enough to be kept with the results."""
    (picture, vector) = save(figure, path, ("png", "pdf"))
    if vector.stat().st_size < LARGEST_PDF:
        return [picture, vector]
    vector.unlink()
    return [picture]


# -- notes below a figure, and the legend above them ------------------------------------------------------------------

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
