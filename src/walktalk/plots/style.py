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

ANY_R = "multi_walk-R"  # a line on which the number of walks changes; its marks have the colours of their R

FIXED = {
    "multi_walk-1": "#0072B2",  # blue
    "multi_walk-2": "#56B4E9",  # sky
    "multi_walk-4": "#009E73",  # green
    "multi_walk-6": "#999933",  # olive
    "multi_walk-8": "#332288",  # indigo
    "multi_walk-10": "#882255",  # wine
    "multi_walk-15": "#CC79A7",  # pink
    "multi_walk-16": "#AA4499",  # purple
    "multi_walk-32": "#DDCC77",  # sand
    ANY_R: "#4D4D4D",  # charcoal
    "async_gossip-pairwise": "#D55E00",  # vermilion
    "async_gossip-matrix": "#E69F00",  # orange
    "async_gossip-neighbourhood": "#8C510A",  # brown
    "sync_gossip": "#777777",
    "centralized": "#000000",
}
# For all others. None of them is fixed to anybody, so a name keeps its colour whoever is drawn beside it.
SPARE = ("#117733", "#44AA99", "#6699CC", "#661100", "#EE6677", "#CCBB44", "#997700", "#994455")
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


def in_order(labels: Iterable[str]) -> list[str]:
    """Labels as every legend lists them: walks by their number, anything else, gossip, and the reference last."""
    return sorted(dict.fromkeys(labels), key=_place)


def _place(label: str) -> tuple[int, int]:
    walks = re.match(r"multi_walk-(\d+)", label)
    if walks:
        return 0, int(walks[1])
    families = (label.startswith("centralized"), "gossip" in label)
    return (3, 0) if families[0] else (2, 0) if families[1] else (1, 0)


_PARTS = (
    (re.compile(r"^multi_walk-R$"), "MW, any R"),
    (re.compile(r"^multi_walk-(\d+)"), r"MW, R=\1"),
    (re.compile(r"^async_gossip-(\w+)"), r"Async-Gossip (\1)"),
    (re.compile(r"^sync_gossip"), "Sync-Gossip"),
    (re.compile(r"^centralized"), "Centralized"),
    (re.compile(r"-at(\d+)"), r", at node \1"),
    (re.compile(r"-lr([\d.e+-]+)$"), r", lr \1"),
)


def title_of(label: str) -> str:
    """An algorithm's label as the paper writes it, and which gossip: "MW, R=4", "Async-Gossip (pairwise)"."""
    for pattern, replacement in _PARTS:
        label = pattern.sub(replacement, label)
    return label


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that lays itself out."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: str | PathLike[str], formats: Iterable[str] = ("png", "svg")) -> list[Path]:
    """Write the figure under this name as PNG and SVG (or PDF), without a date: equal figures are equal bytes."""
    written = []
    for kind in formats:
        file = Path(path).with_name(f"{Path(path).name}.{kind}")
        with replacing(file) as part, styled():
            figure.savefig(part, format=kind, dpi=DPI, metadata=_METADATA[kind])
        figure.set_layout_engine("none")  # laid out once; again for every format would take as long as drawing it
        written.append(file)
    return written


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
