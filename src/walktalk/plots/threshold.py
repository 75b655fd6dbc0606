"""Final loss against the number of walks, with gossip's beside it: from how many walks on is gossip better?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from walktalk.errors import StudyError
from walktalk.plots.notes import legend_below, note_below, upright
from walktalk.plots.scales import ticks_at
from walktalk.plots.style import ANY_WALKS, GREY, Algorithms, line_style, new_figure, styled
from walktalk.protocols import Described, known


def threshold(
    ends: pd.DataFrame,
    crossover: float,
    *,
    value: str = "train_loss",
    y: str = "Final training loss",
    notes: Sequence[str] = (),
    algorithms: Algorithms | None = None,
) -> Figure:
    """How runs of Multi-Walk ended, over the number of walks, beside gossip's.

    Args:
        ends: columns algorithm, repetition and the value at a run's end.
        crossover: the R at which theory has both even.
        value: the column that is drawn.
        y: what its axis says.
        notes: sentences below the figure.
        algorithms: What the study's folder says of its algorithms; their labels alone say it if left out.
    """
    found = known((str(label) for label in ends["algorithm"]), algorithms).values()
    of = {one.label: ends.loc[ends["algorithm"] == one.label, value].dropna() for one in found}
    walks = {int(one.settings["walks"]): one for one in found if "walks" in one.settings and len(of[one.label])}
    if not walks:
        raise StudyError("there is no run of Multi-Walk that ended with a number, so there is nothing to draw")
    with styled():
        figure = new_figure(4.6, 3.7)
        panel = figure.subplots()
        means = [float(of[one.label].mean()) for one in walks.values()]
        look: Any = {"color": ANY_WALKS.colour, "linewidth": 1.0, "zorder": 2, "label": ANY_WALKS.heading}
        panel.plot(list(walks), means, **look)
        for count, one in walks.items():
            runs = of[one.label]
            spread = float(runs.std(ddof=1)) if len(runs) > 1 else None
            look = {"fmt": "o", "markersize": 4, "capsize": 3, "ecolor": "black", "elinewidth": 0.8, "zorder": 3}
            panel.errorbar(count, float(runs.mean()), spread, color=one.colour, **look)
        for one in sorted((one for one in found if one.family == "gossip"), key=lambda one: one.label):
            _level(panel, one, of[one.label])
        panel.axvline(crossover, color=GREY, linewidth=1.0, zorder=1)
        panel.set_xscale("log")
        panel.set_ylim(bottom=0)
        ticks_at(panel.xaxis, [float(count) for count in walks])
        panel.set_xlabel("Walks R")
        panel.set_ylabel(y)
        handles, labels = panel.get_legend_handles_labels()
        legend_below(figure, [*handles, upright(GREY)], [*labels, f"√(V/p) = {crossover:.1f}"])
        note_below(figure, notes)
    return figure


def _level(panel: Any, one: Described, runs: pd.Series[float]) -> None:
    """Gossip has no R: a line across, and its band."""
    colour, mean = one.colour, float(runs.mean())
    spread = float(runs.std(ddof=1)) if len(runs) > 1 else 0.0
    if np.isfinite(mean):
        panel.axhspan(mean - spread, mean + spread, color=colour, alpha=0.18, linewidth=0)
        panel.axhline(mean, color=colour, linestyle=line_style(one.family), label=one.heading)
