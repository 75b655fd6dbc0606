"""How every figure looks: one colour and one line style per algorithm everywhere, readable without colour vision.

Colours are those of Okabe and Ito (2008) and Tol's muted set. Figures are drawn without pyplot, so no window opens and
nothing is global; the bytes of a file depend on what is drawn only.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from walktalk.records import replacing

FIXED = {
    "multi_walk-1": "#0072B2",  # blue
    "multi_walk-2": "#56B4E9",  # sky
    "multi_walk-4": "#009E73",  # green
    "multi_walk-15": "#CC79A7",  # pink
    "async_gossip-pairwise": "#D55E00",  # vermilion
    "async_gossip-matrix": "#E69F00",  # orange
    "async_gossip-neighbourhood": "#8C510A",  # brown
    "sync_gossip": "#666666",
    "centralized": "#000000",
}
SPARE = ("#332288", "#117733", "#882255", "#999933", "#44AA99", "#AA4499", "#6699CC", "#661100")
WALK_COLOURS = ("#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", *SPARE, "#666666", "#000000")

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
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "xtick.direction": "out",
    "ytick.direction": "out",
    "svg.hashsalt": "walktalk",  # else element names in SVG are random
    "savefig.facecolor": "white",
}


def styled() -> Any:
    """A context in which everything is drawn in this style."""
    return matplotlib.rc_context(STYLE)


def colours(labels: Iterable[str]) -> dict[str, str]:
    """A colour for each algorithm: fixed for the usual ones, for others by name, none twice while there are enough."""
    names = list(dict.fromkeys(labels))
    chosen = {name: FIXED[name] for name in names if name in FIXED}
    for name in sorted(set(names) - set(chosen)):
        first = zlib.crc32(name.encode()) % len(SPARE)
        order = [*SPARE[first:], *SPARE[:first]]
        chosen[name] = next((colour for colour in order if colour not in chosen.values()), order[0])
    return chosen


def line_style(label: str) -> Any:
    """Solid for walks, dashed for gossip, dotted for the reference: families can be told apart in grey."""
    if "gossip" in label:
        return (0, (5, 1.6))
    return (0, (1, 1.4)) if label.startswith("centralized") else "-"


_PARTS = (
    (re.compile(r"^multi_walk-(\d+)"), r"MW, R=\1"),
    (re.compile(r"^async_gossip-pairwise"), "Async-Gossip"),
    (re.compile(r"^async_gossip-(\w+)"), r"Async-Gossip (\1)"),
    (re.compile(r"^sync_gossip"), "Sync-Gossip"),
    (re.compile(r"^centralized"), "Centralized"),
    (re.compile(r"-at(\d+)"), r", at node \1"),
    (re.compile(r"-lr([\d.e+-]+)$"), r", lr \1"),
)


def title_of(label: str) -> str:
    """An algorithm's label as the paper writes it: "MW, R=4", "Async-Gossip"."""
    for pattern, replacement in _PARTS:
        label = pattern.sub(replacement, label)
    return label


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that lays itself out."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: str | PathLike[str], formats: Iterable[str] = ("png", "svg")) -> list[Path]:
    """Write the figure as PNG and SVG under this name, without a date, so that equal figures are equal bytes."""
    written = []
    for kind in formats:
        file = Path(path).with_name(f"{Path(path).name}.{kind}")
        with replacing(file) as part, styled():
            figure.savefig(part, format=kind, dpi=200, metadata={"Date": None} if kind == "svg" else {"Software": None})
        written.append(file)
    return written
