"""One value under several variants of the settings, algorithm by algorithm: does who wins depend on them?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from walktalk.errors import StudyError
from walktalk.plots.style import colours, new_figure, styled, title_of

WIDTH = 0.8  # of a variant's place that its algorithms share


def variants(panels: Mapping[str, pd.DataFrame], *, value: str, y: str, names: Mapping[str, str]) -> Figure:
    """A panel per table; columns: algorithm, variant, and the value, one row a run. `names` orders the variants.

    A bar is the mean over runs, with its standard deviation where there are several; what was not run has none.
    """
    if not panels:
        raise StudyError("there is no table to draw")
    labels = list(dict.fromkeys(str(label) for table in panels.values() for label in table["algorithm"]))
    chosen = colours(labels)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with styled():
        figure = new_figure(3.7 * columns + 0.2, 2.3 * rows + 0.5)
        places = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for place, (title, table) in zip(places.flat, panels.items(), strict=False):
            for k, label in enumerate(labels):
                found = [table[(table["algorithm"] == label) & (table["variant"] == name)][value] for name in names]
                at = np.arange(len(names)) + (k - (len(labels) - 1) / 2) * WIDTH / len(labels)
                means = [float(runs.mean()) if len(runs) else np.nan for runs in found]
                spread = [float(runs.std(ddof=1)) if len(runs) > 1 else 0.0 for runs in found]
                bars = place.bar(at, means, WIDTH / len(labels), color=chosen[label], label=title_of(label))
                if any(spread):
                    place.errorbar(at, means, spread, fmt="none", ecolor="black", elinewidth=0.8, capsize=1.5)
                if "gossip" in label:
                    for bar in bars:
                        bar.set_hatch("///")  # families can be told apart in grey
                        bar.set_edgecolor("white")
            place.set_xticks(range(len(names)), list(names.values()), fontsize=8)
            place.set_title(title, loc="left")
            place.grid(axis="x", visible=False)
        for place in places[:, 0]:
            place.set_ylabel(y)
        handles, words = places[0, 0].get_legend_handles_labels()
        figure.legend(handles, words, loc="outside lower center", ncols=min(len(words), 5))
    return figure
