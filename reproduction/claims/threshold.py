"""From how many walks on gossip is ahead per iteration, beside the paper's √(V/p) (Section 4.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from claims.networks import is_the_runs_graph, network_of
from claims.runs import FIRST_DECAY, Setting, measured, value_until, walks_in
from claims.spread import NOT_RUN, Cell, line, spread, table
from walktalk import theory

NOT_A_NUMBER = "not a number in some runs"
CLAIM = "On the complete graph gossip beats R = 15, and a threshold of R lies below"
HEAD = [
    "aggregated, of the means",
    "each repetition",
    "mean of the walks, of the means",
    "each repetition",
    "aggregated before 75 %",
    "mean of the walks before 75 %",
    "walks run",
    "√(V/p)",
    "p",
]


def section(settings: Sequence[Setting], folder: Path) -> list[str]:
    checked = {setting.name: is_the_runs_graph(setting, folder) for setting in settings}
    words = [f"{name}: {'yes' if same else 'NO'}" for name, same in checked.items() if same is not None]
    return [
        table(
            CLAIM,
            "R at which the final loss crosses gossip's, by straight line in log R",
            HEAD,
            {setting.name: row(setting, folder) for setting in settings},
            1,
            "no crossing",
        ),
        line(
            CLAIM,
            "p is of the graph that the runs had (its schedule ends with their time and bits): "
            f"{', '.join(words) or NOT_RUN}",
        ),
        "",
    ]


def row(setting: Setting, folder: Path) -> list[Cell]:
    network = network_of(setting, folder)
    paper = ["", ""] if network is None else [f"{theory.crossover_walks(network):.1f}", f"{network.p:.4f}"]
    run = ", ".join(f"{walks_in(label):g}" for label in setting.walks) if setting.gossip else NOT_RUN
    mean = setting.of_means()
    early = [crossings(of, FIRST_DECAY)[0] for of in (setting, mean)]
    return [*crossings(setting), *crossings(mean), *early, run, *paper]


def crossings(setting: Setting, share: float = 1.0) -> list[Cell]:
    """The R of the means over repetitions, and that of each repetition that all have."""
    if not (setting.walks and setting.gossip):
        return [NOT_RUN, NOT_RUN]
    ends = {label: measured(setting.runs(label), "train_loss", share) for label in setting.labels}
    labels = [label for label in setting.walks if ends[label].complete]
    if not labels or not ends[setting.gossip].complete:
        return [NOT_A_NUMBER, NOT_A_NUMBER]
    means = crossing([(walks_in(x), ends[x].mean) for x in labels], ends[setting.gossip].mean)
    losses = pd.DataFrame({x: by_repetition(setting, x, share) for x in (*labels, setting.gossip)}).dropna()
    each = [crossing([(walks_in(x), row[x]) for x in labels], row[setting.gossip]) for _, row in losses.iterrows()]
    return [in_words(means, labels), spread(value if 0 < value < math.inf else math.nan for value in each)]


def by_repetition(setting: Setting, label: str, share: float) -> dict[int, float]:
    runs = setting.runs(label)
    return {int(run["repetition"].iloc[0]): value_until(run, "train_loss", share) for run in runs}


def crossing(losses: Sequence[tuple[float, float]], gossip: float) -> float:
    """Where losses (R, loss) first rise above gossip's; 0 if the first is above, infinity if none is."""
    above = [place for place, (_, loss) in enumerate(losses) if loss > gossip]
    if not above:
        return math.inf
    if above[0] == 0:
        return 0.0
    (r0, loss0), (r1, loss1) = losses[above[0] - 1], losses[above[0]]
    return math.exp(math.log(r0) + (gossip - loss0) / (loss1 - loss0) * math.log(r1 / r0))


def in_words(value: float, labels: Sequence[str]) -> str:
    if value == 0:
        return f"below {walks_in(labels[0]):g}"
    return f"{value:.1f}" if math.isfinite(value) else f"above {walks_in(labels[-1]):g}"
