"""The running average of ‖∇f‖² beside its bound, one line of each for an algorithm."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from walktalk.plots.notes import legend_below, note_below
from walktalk.plots.scales import log_axis
from walktalk.plots.style import new_figure, styled
from walktalk.plots.theory_series import BOUND_WIDTH, DOTTED, MATRIX, bound_handle, looks

GRADIENT = "Average of ‖∇f‖²"


def bound_curves(table: pd.DataFrame, *, title: str | None = None, notes: Sequence[str] = ()) -> Figure:
    """What was measured beside its bound, over iterations. Bounds are dotted, in the colour of what they bound.

    Args:
        table: columns series, iteration, measured, bound.
        title: of the figure.
        notes: sentences below it.
    """
    with styled():
        figure = new_figure(4.8, 3.9)
        panel = figure.subplots()
        for name, look in looks(table["series"].unique(), MATRIX).items():
            part = table[table["series"] == name]
            panel.plot(part["iteration"], part["measured"], color=look.colour, linestyle=look.line, label=look.title)
            panel.plot(part["iteration"], part["bound"], color=look.colour, linestyle=DOTTED, linewidth=BOUND_WIDTH)
        log_axis(panel.xaxis, table["iteration"].min(), table["iteration"].max())
        values = table[["measured", "bound"]]
        log_axis(panel.yaxis, values.min().min() / 1.5, values.max().max() * 1.5)
        panel.set_xlabel("Iterations T")
        panel.set_ylabel(f"{GRADIENT} over T iterations")
        handles, labels = panel.get_legend_handles_labels()
        legend_below(figure, [*handles, bound_handle()], [*labels, str(bound_handle().get_label())])
        note_below(figure, notes)
        if title:
            panel.set_title(title, loc="left")
    return figure
