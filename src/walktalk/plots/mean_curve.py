"""The mean over repetitions and its spread, at places that they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

Axis = Literal["iteration", "time", "bits"]
AXES: tuple[Axis, ...] = ("iteration", "time", "bits")

MOST = 300  # points of a curve whose repetitions were measured at different places; more cannot be seen
FINE = 3  # times as many points as one repetition has: ten repetitions together have more than a file should hold

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """An algorithm's mean over repetitions, and its standard deviation."""

    x: Floats
    mean: Floats  # not a number where no repetition has one
    std: Floats  # 0 where fewer than two have


def is_share(value: str) -> bool:
    """Whether a column is a share from 0 to 1, which people read in percent."""
    return value.endswith("test_accuracy")


def mean_curve(runs: pd.DataFrame, x: Axis, value: str) -> Curve:
    """Mean and σ over repetitions, on the points that they share or, failing that, on those of all, thinned if many.

    An evaluation that is not a number is left out of both, and the others go on; between it and its neighbours nothing
    is known of that repetition. Beyond the end of the shortest repetition a mean would be over fewer runs that have
    nothing wrong with them, so the curve ends there.
    """
    parts = [run.sort_values(x, kind="stable") for _, run in runs.groupby("repetition")]
    xs = [part[x].to_numpy(float) for part in parts]
    scale = 100.0 if is_share(value) else 1.0
    ys = [part[value].to_numpy(float) * scale for part in parts]
    grid = xs[0]
    if any(len(other) != len(grid) or not np.array_equal(other, grid) for other in xs[1:]):
        first = max(float(a[0]) for a in xs)
        last = max(first, min(float(a[-1]) for a in xs))
        everywhere = np.unique(np.concatenate([*xs, [first, last]]))
        grid = everywhere[(everywhere >= first) & (everywhere <= last)]  # between these the mean is a straight line
        most = min(MOST, FINE * max(len(a) for a in xs))
        grid = grid if len(grid) <= most else np.linspace(first, last, most)
    known = [np.where(np.isfinite(b), b, np.nan) for b in ys]
    return Curve(grid, *_spread(np.stack([np.interp(grid, a, b) for a, b in zip(xs, known, strict=True)])))


def _spread(stacked: Floats) -> tuple[Floats, Floats]:
    """Mean and σ over the rows that have a number, column by column."""
    there = np.isfinite(stacked)
    count = there.sum(axis=0)
    mean = np.where(there, stacked, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = (np.where(there, stacked - mean, 0.0) ** 2).sum(axis=0)
    std = np.sqrt(squares / np.maximum(count - 1, 1))
    return np.where(count > 0, mean, np.nan), std
