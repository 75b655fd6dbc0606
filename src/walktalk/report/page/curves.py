"""The curves of the page as data: means with their spread, the single runs, and what was left out of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from walktalk.plots import AXES, is_share, mean_curve
from walktalk.records import HistoryRow

POINTS = 400  # of one run; more cannot be seen
BUDGET = 60_000  # points of all runs together: about a megabyte and a half of page
RUNS = 20  # of one algorithm that are drawn singly; more are a blot
METRICS = {  # column: name, whether less is better
    "train_loss": ("Training loss", True),
    "test_accuracy": ("Test accuracy", False),
    "test_loss": ("Test loss", True),
    "consensus": ("Disagreement between models", True),
    "mean_train_loss": ("Training loss of the mean model", True),
    "mean_test_accuracy": ("Test accuracy of the mean model", False),
    "mean_test_loss": ("Test loss of the mean model", True),
}
MORE_IS_BETTER = ("accuracy", "f1", "auc", "precision", "recall", "score")  # in the name of a metric of one's own
NOT_METRICS = {*HistoryRow._fields} - set(METRICS)


def metrics_of(history: pd.DataFrame) -> list[dict[str, Any]]:
    """What can be shown: every column of the history with a number in it that is no axis, ours first."""
    columns = [*METRICS, *(str(name) for name in history.columns if name not in METRICS)]
    found = []
    for key in columns:
        if key in NOT_METRICS or key not in history or not np.isfinite(history[key].to_numpy(float)).any():
            continue
        usual = (key.replace("_", " ").capitalize(), not any(word in key.lower() for word in MORE_IS_BETTER))
        name, less = METRICS.get(key, usual)
        found.append({"key": key, "name": name, "unit": "%" if is_share(key) else "", "less": less})
    return found


def means(history: pd.DataFrame, labels: Iterable[str], metrics: Iterable[str]) -> dict[str, Any]:
    """Mean and σ over repetitions: by algorithm, by axis, by metric."""
    keys = list(metrics)
    return {
        label: {axis: _along(history[history["algorithm"] == label], axis, keys) for axis in AXES} for label in labels
    }


def _along(runs: pd.DataFrame, axis: Any, metrics: Sequence[str]) -> dict[str, Any]:
    drawn = {key: mean_curve(runs, axis, key) for key in metrics}
    grid = next(iter(drawn.values())).x if drawn else np.zeros(0)
    kept = spread_out(len(grid), POINTS)
    return {
        "x": numbers(grid[kept]),
        **{key: {"mean": numbers(c.mean[kept]), "std": numbers(c.std[kept])} for key, c in drawn.items()},
    }


def single_runs(history: pd.DataFrame, metrics: Iterable[str]) -> tuple[dict[str, Any], str]:
    """Every run's evaluations, by algorithm, and a sentence on what was left out so that the page stays small."""
    keys = [*AXES, *metrics]
    groups = history.groupby(["algorithm", "repetition"], sort=False)
    most = max(20, min(POINTS, BUDGET // max(len(groups), 1)))
    found: dict[str, list[dict[str, Any]]] = {}
    thinned = 0
    for (label, repetition), run in groups:
        ordered = run.sort_values("iteration", kind="stable")
        kept = spread_out(len(ordered), most)
        thinned += len(kept) < len(ordered)
        columns = {key: numbers(_scaled(key, ordered[key].to_numpy(float)[kept])) for key in keys}
        found.setdefault(str(label), []).append({"repetition": int(str(repetition)), **columns})
    said = f"{thinned:,} of {len(groups):,} runs are shown with {most:,} of their evaluations each." if thinned else ""
    return found, said


def spread_out(count: int, most: int) -> Any:
    """Places of at most that many of so many points: all, or evenly spread with the first and the last."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(int))


def numbers(values: Iterable[float]) -> list[float | int | None]:
    """Numbers as JSON has them, with as many digits as a screen can show; nothing where there is no number."""
    return [_number(float(value)) for value in values]


def _number(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.6g}")


def _scaled(key: str, values: Any) -> Any:
    return values * 100.0 if is_share(key) else values
