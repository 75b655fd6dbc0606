"""Draws the figures of `theory.py` from its tables, without measuring anything again.

python reproduction/theory_figures.py results/2026-11-15-advisor-theory
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from walktalk.report import figures as plots

FIXED = {  # what `theory.py` holds while a variable changes
    "T": "V = 16",
    "R": "V = 32, T = 4,000",
    "V": "T = 4,000",
    "p": "V = 32, T = 4,000",
}
PHASE_TITLES = {"iterations": "Cost in iterations", "time": "Cost in time"}


def bounds(folder: Path) -> Any:
    table = pd.read_csv(folder / "curves.csv")
    notes = ["Cycle of V = 16, σ² = ζ² = 1, η tuned for T = 8,000. Mean of three repetitions."]
    return plots.bound_curves(table, notes=notes)


def slopes(folder: Path) -> Any:
    notes = [
        "Beside a line: its exponent (the bound's over the same points); for T, of the last three points.",
        "Mean of two repetitions; σ² = ζ² = 1; η tuned for the bound.",
        "No average can exceed ‖∇f‖² at the start, which is 12.",
        "(d): cycle, random 4- and 8-regular, complete graph.",
        "In (b) a mark has the colour of its R.",
    ]
    tables = (pd.read_csv(folder / "scaling.csv"), pd.read_csv(folder / "slopes.csv"))
    return plots.scaling(*tables, titles=FIXED, notes=notes)


def speedup(folder: Path) -> Any:
    table = pd.read_csv(folder / "speedup.csv")
    notes = [
        "Time to 1 % of the start's excess loss, best of five learning rates, mean of four repetitions.",
        "σ² = 30, ζ² = 0; V = 16 for walks.",
        "A mark has the colour of its R.",
    ]
    return plots.speed_up_figure(table[np.isfinite(table["time"])], notes=notes)


def phase(folder: Path) -> Any:
    table = pd.read_csv(folder / "phase.csv")
    table = table.assign(x=[graph_name(str(name)) for name in table["x"]])
    parts = {title: table[table["axis"] == axis] for axis, title in PHASE_TITLES.items()}
    notes = [
        "V = 16, σ² = 1; cost to 2 % of the start's excess loss, best of five learning rates and of R = 1, 4 and 16, "
        "mean of three repetitions.",
        "In a cell: who is cheaper, and how many times.",
    ]
    return plots.phase(parts, x="Graph, by spectral gap p", y="Heterogeneity ζ²", notes=notes)


def graph_name(name: str) -> str:
    """As a reader would say it, in three lines: "regular4 p=0.48" is a random 4-regular graph."""
    graph, _, gap = name.partition(" p=")
    regular = re.fullmatch(r"regular(\d+)", graph)
    return "\n".join((*(("random", f"{regular[1]}-regular") if regular else (graph, "graph")), f"p = {gap}"))


FIGURES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "bounds": ("bound", bounds),
    "slopes": ("scaling", slopes),
    "speedup": ("speedup", speedup),
    "phase": ("phase", phase),
}


def draw(folder: Path, part: str) -> list[Path]:
    """The figure of one part, as PNG and PDF."""
    name, figure = FIGURES[part]
    return plots.save_for_print(figure(folder), folder / name)


if __name__ == "__main__":
    for part in FIGURES:
        for file in draw(Path(sys.argv[1]), part):
            print(file)
