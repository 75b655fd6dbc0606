"""The image runs: a setting is one α on one graph, with the history of all algorithms that ran there."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from claims.spread import NOTHING, Spread, spread
from walktalk.records import RUN_COLUMNS, read_history
from walktalk.reproduction.paper.drawing.who_wins import NAMES, NETWORKS, alpha_of, family
from walktalk.reproduction.paper.figures import ALPHAS
from walktalk.studies import at_the_end, first_below

FALLS = (0.75, 0.9)  # of the iterations: there the learning rate falls to a tenth (Table 5)
FIRST_DECAY = FALLS[0]
THRESHOLD_ALPHA = 1.0  # of threshold/TOPOLOGY.csv where no facts.json says so: that of Figure 4
AGGREGATED, MEAN = "aggregated model", "mean of the walks' or nodes' models"
EMPTY = pd.DataFrame(columns=list(RUN_COLUMNS))


@dataclass(frozen=True, eq=False)
class Setting:
    """One α on one graph."""

    alpha: float
    topology: str
    history: pd.DataFrame  # empty where nothing was run

    @property
    def name(self) -> str:
        return f"α = {self.alpha:g}, {graph_name(self.topology)}"

    @property
    def labels(self) -> list[str]:
        return in_order(self.history["algorithm"])

    @property
    def walks(self) -> list[str]:
        return [label for label in self.labels if family(label) == "walk"]

    @property
    def gossip(self) -> str | None:
        return next((label for label in self.labels if family(label) == "gossip"), None)

    def runs(self, label: str | None) -> list[pd.DataFrame]:
        return runs_of(self.history, label)

    def of_means(self) -> Setting:
        """The same with the mean of the walks' or nodes' models in place of the aggregated one."""
        return replace(self, history=of_means(self.history))


def settings_of(folder: Path) -> list[Setting]:
    """From alpha-A/TOPOLOGY.csv; those of the paper that were not run are there, empty."""
    files = {(alpha_of(file), file.stem): file for file in folder.glob("alpha-*/*.csv")}
    alphas = sorted({*ALPHAS, *(alpha for alpha, _ in files)}, reverse=True)
    graphs = [*NETWORKS, *sorted({graph for _, graph in files} - set(NETWORKS))]
    return [
        Setting(alpha, graph, with_more_walks(folder, files.get((alpha, graph)), alpha, graph))
        for alpha in alphas
        for graph in graphs
        if graph in NETWORKS or (alpha, graph) in files
    ]


def measures(settings: Sequence[Setting]) -> list[tuple[str, list[Setting]]]:
    """Which model is measured, and the settings with it: the aggregated one, and the mean of all."""
    return [(AGGREGATED, list(settings)), (MEAN, [setting.of_means() for setting in settings])]


def with_more_walks(folder: Path, file: Path | None, alpha: float, topology: str) -> pd.DataFrame:
    """A history, and what threshold/TOPOLOGY.csv has of other numbers of walks in the same setting."""
    history = EMPTY if file is None else read_history(file)
    for more in sorted(folder.glob(f"threshold*/{topology}.csv")):
        if float(facts_of(more.parent).get("settings", {}).get("alpha", THRESHOLD_ALPHA)) == alpha:
            found = read_history(more)
            new = found[~found["algorithm"].isin(history["algorithm"])]
            history = pd.concat([history, new], ignore_index=True) if len(history) else new
    return history


def facts_of(folder: Path) -> dict[str, Any]:
    """Settings and speed, as the scripts wrote them; nothing where they are missing."""
    file = folder / "facts.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def history_in(folder: Path, name: str) -> pd.DataFrame:
    """A history, empty where it was not run."""
    return read_history(folder / name) if (folder / name).is_file() else EMPTY


# -- names ------------------------------------------------------------------------------------------------------------


def graph_name(topology: str) -> str:
    return NAMES.get(topology, topology)


def walks_in(label: str) -> float:
    """R, or infinity for what is no walk, so that it comes last."""
    found = re.fullmatch(r"multi_walk-(\d+)", label)
    return float(found[1]) if found else math.inf


def in_order(labels: Iterable[object]) -> list[str]:
    return sorted({str(label) for label in labels}, key=lambda label: (walks_in(label), label))


def short(label: str) -> str:
    """As in the tables: R = 4, gossip."""
    return label.partition("-")[0].removeprefix("async_") if walks_in(label) == math.inf else f"R = {walks_in(label):g}"


# -- numbers ----------------------------------------------------------------------------------------------------------


def of_means(history: pd.DataFrame) -> pd.DataFrame:
    return history.assign(train_loss=history["mean_train_loss"], test_accuracy=history["mean_test_accuracy"])


def runs_of(history: pd.DataFrame, label: str | None) -> list[pd.DataFrame]:
    """The repetitions of an algorithm, each in order."""
    part = history[history["algorithm"] == label]
    return [run.sort_values("iteration", kind="stable") for _, run in part.groupby("repetition", sort=True)]


LOOKED_AT = ("train_loss", "mean_train_loss", "test_accuracy", "mean_test_accuracy")
"""Columns in which one evaluation may be luck: of these the mean over the last few is taken."""


def value_until(
    run: pd.DataFrame, column: str, share: float = 1.0, *, along: str = "iteration", end: float | None = None
) -> float:
    """A column at that share of a run: the mean over the last few evaluations until then, none of which is from before
    the learning rate last fell.

    Args:
        run: Its evaluations, in order.
        column: Such as `train_loss`.
        share: Of its way.
        along: What the way is measured in: `iteration` or `time`.
        end: How long it is; as far as the run went, if left out.
    """
    whole = float(run[along].max()) if end is None else end
    there = run[run[along] <= share * whole]
    since = max((fall for fall in FALLS if fall < share), default=0.0)
    before = int((there[along] <= since * whole).sum()) if since else 0
    return at_the_end(there, column, before) if column in LOOKED_AT else float(there[column].iloc[-1])


def measured(runs: Sequence[pd.DataFrame], column: str, share: float = 1.0) -> Spread:
    """A column at the end of the runs, or at a share of them."""
    return spread(value_until(run, column, share) for run in runs) if runs else NOTHING


def to_loss(runs: Sequence[pd.DataFrame], axis: str, target: float) -> Spread:
    """What the runs spend until their loss first comes down to the target.

    The start is left out, as in phase.csv: a BatchNorm's running statistics mean nothing there.
    """
    return spread(first_below(run[run["iteration"] > 0], axis, target) for run in runs) if runs else NOTHING


def pace(runs: Sequence[pd.DataFrame], over: str, under: str = "time") -> Spread:
    """One column's end over another's: iterations a second, bits an iteration."""
    return spread(float(run[over].iloc[-1]) / float(run[under].iloc[-1]) for run in runs) if runs else NOTHING


def all_labels(settings: Sequence[Setting]) -> list[str]:
    return in_order([label for setting in settings for label in setting.labels])
