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
from walktalk.plots.style import ANY_R, GREY, colours, line_style, new_figure, styled, title_of


def threshold(
    ends: pd.DataFrame,
    crossover: float,
    *,
    value: str = "train_loss",
    y: str = "Final training loss",
    notes: Sequence[str] = (),
) -> Figure:
    """Columns: algorithm, repetition and the value at a run's end. `crossover`: the R at which theory has them even."""
    walks = {
        int(str(label).removeprefix("multi_walk-")): runs[value].dropna()
        for label, runs in ends.groupby("algorithm")
        if str(label).startswith("multi_walk-")
    }
    walks = {count: runs for count, runs in sorted(walks.items()) if len(runs)}
    if not walks:
        raise StudyError("there is no run of Multi-Walk that ended with a number, so there is nothing to draw")
    chosen = colours([ANY_R, *(f"multi_walk-{count}" for count in walks)])
    with styled():
        figure = new_figure(4.6, 3.7)
        panel = figure.subplots()
        means = [float(runs.mean()) for runs in walks.values()]
        panel.plot(list(walks), means, color=chosen[ANY_R], linewidth=1.0, zorder=2, label=title_of(ANY_R))
        for count, runs in walks.items():
            label = f"multi_walk-{count}"
            spread = float(runs.std(ddof=1)) if len(runs) > 1 else None
            look: Any = {"fmt": "o", "markersize": 4, "capsize": 3, "ecolor": "black", "elinewidth": 0.8, "zorder": 3}
            panel.errorbar(count, float(runs.mean()), spread, color=chosen[label], **look)
        for name in sorted({str(name) for name in ends["algorithm"] if "gossip" in str(name)}):
            _level(panel, name, ends.loc[ends["algorithm"] == name, value].dropna())
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


def _level(panel: Any, label: str, runs: pd.Series[float]) -> None:
    """Gossip has no R: a line across, and its band."""
    colour, mean = colours([label])[label], float(runs.mean())
    spread = float(runs.std(ddof=1)) if len(runs) > 1 else 0.0
    if np.isfinite(mean):
        panel.axhspan(mean - spread, mean + spread, color=colour, alpha=0.18, linewidth=0)
        panel.axhline(mean, color=colour, linestyle=line_style(label), label=title_of(label))
