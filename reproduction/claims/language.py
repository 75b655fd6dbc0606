"""Figure 8: a language model under congestion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from claims.costs import GB, MB
from claims.losses import PERCENT
from claims.networks import model_bits
from claims.runs import AGGREGATED, MEAN, history_in, in_order, measured, of_means, pace, runs_of, short
from claims.spread import NOT_RUN, Cell, Spread, line, ratio, scaled, spread, table
from walktalk.reproduction.paper.drawing.who_wins import family, worst_best
from walktalk.studies import first_below

LOSSES = (1.112, 1.0, 0.9, 0.8, 0.7, 0.6)  # beside the lowest that all reach; 1.099 is guessing's
AXES = {"iteration": ("iterations", 1.0, 0), "bits": ("GB", GB, 1), "time": ("virtual seconds", 1.0, 1)}
CONGESTION = "Congestion makes gossip slower than one walk in time, too, with a large model"
DATA = "One walk needs 50 GB, gossip 600 GB (12 times)"


def section(folder: Path) -> list[str]:
    history = history_in(folder / "fig8", "fig8.csv")
    if history.empty:
        return [line(name, NOT_RUN) for name in (CONGESTION, DATA)] + [""]
    labels = in_order(history["algorithm"])
    found = [ends(history, labels)]
    for title, of in ((AGGREGATED, history), (MEAN, of_means(history))):
        found += [to_losses(of, labels, title, axis) for axis in AXES]
    size = model_bits([history])
    return [*found, line(DATA, f"a model is {size / MB:,.0f} MB ({size // 32:,} numbers)"), ""]


def ends(history: pd.DataFrame, labels: Sequence[str]) -> str:
    """How the runs end, and what they do in a second and in an iteration."""
    head = [
        "final loss",
        "accuracy, %",
        "loss of the mean",
        "accuracy of the mean, %",
        "iterations",
        "virtual seconds",
        "GB",
        "iterations a second",
        "GB an iteration",
        "models an iteration",
    ]
    rows: dict[str, list[Cell]] = {}
    size = max(model_bits([history]), 1)
    for label in labels:
        runs = runs_of(history, label)
        an_iteration = pace(runs, "bits", "iteration")
        rows[short(label)] = [
            measured(runs, "train_loss"),
            scaled(measured(runs, "test_accuracy"), PERCENT),
            measured(runs, "mean_train_loss"),
            scaled(measured(runs, "mean_test_accuracy"), PERCENT),
            measured(runs, "iteration"),
            measured(runs, "time"),
            scaled(measured(runs, "bits"), 1 / GB),
            pace(runs, "iteration"),
            scaled(an_iteration, 1 / GB),
            scaled(an_iteration, 1 / size),
        ]
    return table(f"{CONGESTION}; {DATA}", "at the end", head, rows, (3, 1, 3, 1, 0, 1, 0, 2, 3, 2))


def common_loss(history: pd.DataFrame, labels: Sequence[str]) -> float:
    """The lowest loss that every repetition of all reached. A pretrained model's start counts: it means something."""
    return max(worst_best(runs_of(history, label)) for label in labels)


def to_losses(history: pd.DataFrame, labels: Sequence[str], title: str, axis: str) -> str:
    """What each spends until it is down at some losses, and gossip's over that."""
    unit, per, digits = AXES[axis]
    common = common_loss(history, labels)
    walks = [label for label in labels if family(label) == "walk"]
    rows: dict[str, list[Cell]] = {}
    for target in sorted({common, *LOSSES}, reverse=True):
        spent = {label: scaled(reaching(runs_of(history, label), axis, target), 1 / per) for label in labels}
        if math.isfinite(target) and any(cell.having for cell in spent.values()):
            gossip = next((spent[label] for label in labels if family(label) == "gossip"), spread([]))
            name = f"to {target:.3f}" + (" (all reach it)" if target == common else "")
            rows[name] = [*spent.values(), *(ratio(gossip, spent[label]) for label in walks)]
    head = [*map(short, labels), *(f"gossip / {short(label)}" for label in walks)]
    claim = CONGESTION if axis == "time" else DATA
    return table(
        claim, f"{unit} to a loss, {title}", head, rows, [digits] * len(labels) + [2] * len(walks), "not reached"
    )


def reaching(runs: Sequence[pd.DataFrame], axis: str, target: float) -> Spread:
    return spread(first_below(run, axis, target) for run in runs)
