"""How many times faster R walks, or gossip on V nodes, are than one walk."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from walktalk.plots.notes import legend_below, note_below
from walktalk.plots.scales import ticks_at
from walktalk.plots.style import GREY, new_figure, styled
from walktalk.plots.theory_scaling import draw_series
from walktalk.plots.theory_series import PAIRWISE, handles_of, looks


def speed_up_figure(table: pd.DataFrame, *, notes: Sequence[str] = ()) -> Figure:
    """Columns: series, active (R or V), speed_up. The grey line is the linear speed-up that theory promises."""
    with styled():
        figure = new_figure(4.8, 4.1)
        panel = figure.subplots()
        most = float(table["active"].max())
        (linear,) = panel.plot([1.0, most], [1.0, most], color=GREY, linewidth=0.9, label="linear")
        found = looks(table["series"].unique(), PAIRWISE)
        for name, look in found.items():
            series = table[table["series"] == name]
            draw_series(panel, series["active"], series["speed_up"], look)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        doublings = [2.0**k for k in range(int(most).bit_length())]
        ticks_at(panel.xaxis, doublings)
        ticks_at(panel.yaxis, doublings)
        panel.set_xlabel("Models that train at once (R walks or V nodes)")
        panel.set_ylabel("Speed-up over one walk (times)")
        handles = handles_of(found, [linear])
        legend_below(figure, handles, [str(handle.get_label()) for handle in handles])
        note_below(figure, notes)
    return figure
