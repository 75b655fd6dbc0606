"""Means over repetitions: at the same places, and over those that have a number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from walktalk.records import HistoryRow, frame
from walktalk.report import figures
from walktalk.report.figures.axes import mean_curve


def row(repetition: int, iteration: int, time: float, loss: float, label: str = "multi_walk-1") -> HistoryRow:
    return HistoryRow(label, repetition, iteration, time, iteration, loss, math.nan, 0.0)


def test_the_mean_is_over_repetitions_at_the_same_place() -> None:
    rows = [row(r, k, k * (1.0 + r), float(k + r)) for r in range(2) for k in range(5)]
    by_iteration = mean_curve(frame(rows), "iteration", "train_loss")
    assert by_iteration.x.tolist() == [0, 1, 2, 3, 4]
    assert by_iteration.mean.tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert by_iteration.std == pytest.approx(math.sqrt(0.5))
    by_time = mean_curve(frame(rows), "time", "train_loss")
    assert by_time.x[-1] == 4.0  # where the shortest ends
    assert by_time.mean[-1] == pytest.approx((4.0 + 3.0) / 2)


def test_what_is_not_a_number_is_left_out_and_the_others_go_on() -> None:
    """The first repetition has no number at first, the second none at the end: the curve has both ends."""
    losses = ([math.nan, 4.0, 2.0, 1.0], [5.0, 6.0, math.nan, math.inf])
    rows = [row(r, k, float(k), loss) for r, part in enumerate(losses) for k, loss in enumerate(part)]
    curve = mean_curve(frame(rows), "iteration", "train_loss")
    assert curve.mean.tolist() == [5.0, 5.0, 2.0, 1.0]
    assert curve.std.tolist() == [0.0, pytest.approx(math.sqrt(2)), 0.0, 0.0]


def test_where_nobody_has_a_number_there_is_a_gap() -> None:
    rows = [row(0, k, float(k), loss) for k, loss in enumerate([3.0, math.nan, 1.0])]
    curve = mean_curve(frame(rows), "iteration", "train_loss")
    assert np.isnan(curve.mean).tolist() == [False, True, False]
    panel = figures.curves(frame(rows)).axes[0]
    alone = [line for line in panel.lines if line.get_marker() == "."]
    assert alone[0].get_ydata().tolist() == [3.0, 1.0]  # points that no line can show


def test_many_repetitions_do_not_make_many_points() -> None:
    rows = [row(r, k, k * (1 + 0.01 * r), 1.0) for r in range(10) for k in range(20)]
    curve = mean_curve(frame(rows), "time", "train_loss")
    assert 20 <= len(curve.x) <= 60
    assert (curve.x[0], curve.x[-1]) == (0.0, 19.0)


def test_repetitions_that_hardly_overlap() -> None:
    rows = [row(0, 1, 1.0, 1.0), row(0, 2, 2.0, 1.0), row(1, 1, 3.0, 1.0)]
    assert len(mean_curve(frame(rows), "time", "train_loss").x) == 1
