"""One value under several variants of the settings, algorithm by algorithm: does who wins depend on them?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from walktalk.errors import StudyError
from walktalk.plots.notes import legend_below, missing_words, note_below
from walktalk.plots.style import Algorithms, new_figure, styled
from walktalk.protocols import Described, known

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
