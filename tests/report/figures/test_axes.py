"""Axes: everything is on them, numbers can be read off, and what belongs together has the same."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from walktalk.records import HistoryRow, frame
from walktalk.report import figures
from walktalk.report.figures.axes import PLAIN, log_axis, ticks_at


def history(*ends: float, spread: float = 0.1, start: float = 2.0) -> pd.DataFrame:
    """An algorithm for every end: losses that fall to it, in three repetitions."""
    rows = []
    for place, end in enumerate(ends):
        for repetition in (-1, 0, 1):
            for k in range(11):
                loss = (start * (end / start) ** (k / 10)) * (1 + spread * repetition)
                label = f"multi_walk-{2**place}"
                rows.append(HistoryRow(label, repetition + 1, 100 * k, 5.0**place * k, k, loss, 1 - loss / 4, 0.0))
    return frame(rows)


def labels(axis: object) -> list[str]:
    axis.axes.figure.canvas.draw()  # type: ignore[attr-defined]
    low, high = axis.get_view_interval()  # type: ignore[attr-defined]
    at, words = axis.get_majorticklocs(), axis.get_majorticklabels()  # type: ignore[attr-defined]
    return [word.get_text() for place, word in zip(at, words, strict=True) if low <= place <= high]


def test_a_loss_that_falls_far_has_a_logarithmic_axis_with_plain_numbers() -> None:
    panel = figures.curves(history(0.3, 1.0)).axes[0]
    assert panel.get_yscale() == "log"
    assert labels(panel.yaxis) == ["0.3", "0.5", "1", "2"]
    assert figures.curves(history(1.5)).axes[0].get_yscale() == "linear"


def test_no_band_is_cut() -> None:
    for spread in (0.05, 0.5):
        panel = figures.curves(history(0.3, 1.0, spread=spread)).axes[0]
        low, high = panel.get_ylim()
        assert len(panel.collections) == 2  # a band for each
        for band in panel.collections:
            heights = band.get_paths()[0].vertices[:, 1]
            assert low < heights.min() < heights.max() < high


def test_a_band_on_a_logarithmic_axis_goes_as_far_down_as_up_and_never_to_zero() -> None:
    """mean − σ is below 0 here: a band down to there would fill the panel."""
    panel = figures.curves(history(0.3, spread=1.2)).axes[0]
    assert panel.get_yscale() == "log"
    low = panel.get_ylim()[0]
    (band,) = panel.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert low < heights.min()
    line = panel.lines[0].get_ydata()
    assert heights.max() / line.max() == pytest.approx(line.min() / heights.min(), rel=1e-6)


def test_accuracies_start_at_zero() -> None:
    panel = figures.curves(history(0.7)).axes[1]
    assert panel.get_ylim() == (0, 100)
    assert labels(panel.yaxis) == ["0", "20", "40", "60", "80", "100"]


def test_where_accuracies_end_high_the_last_ten_percents_have_room() -> None:
    figure = figures.curves(history(0.1))
    panel = figure.axes[1]
    assert labels(panel.yaxis) == ["0", "50", "80", "90", "95", "98", "100"]
    heights = [panel.transData.transform((0, value))[1] for value in (0, 90, 100)]
    assert heights[2] - heights[1] > 0.4 * (heights[2] - heights[0])
    assert any("opens up" in text.get_text() for text in figure.texts)
    assert not any("opens up" in text.get_text() for text in figures.curves(history(0.7)).texts)


def test_on_a_logarithmic_axis_no_line_comes_from_the_start() -> None:
    """It is infinitely far away, and a line to there would be flat."""
    panel = figures.curves(history(0.3, 1.0, 1.5), "time").axes[0]
    assert panel.get_xscale() == "log"
    assert len(panel.lines) == 3
    assert all(line.get_xdata().min() > 0 for line in panel.lines)


def test_thousands_have_a_comma() -> None:
    assert labels(figures.curves(history(0.3)).axes[0].xaxis)[-1] == "1,000"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.3, "0.3"),
        (1500.0, "1,500"),
        (1e-4, "$10^{-4}$"),
        (3e-4, "$3\\cdot10^{-4}$"),
        (2e7, "$2\\cdot10^{7}$"),
        (0, "0"),
    ],
)
def test_numbers_are_plain_while_they_are_short(value: float, text: str) -> None:
    assert PLAIN(value) == text


def test_every_logarithmic_axis_has_some_numbers() -> None:
    for ratio in np.geomspace(1.5, 1e6, 25):
        panel = Figure().subplots()
        log_axis(panel.yaxis, 0.4, 0.4 * ratio)
        assert 1 <= len(labels(panel.yaxis)) <= 10, ratio


def test_ticks_where_it_was_measured() -> None:
    panel = Figure().subplots()
    panel.plot([8, 64], [1, 2])
    ticks_at(panel.xaxis, [8, 16, 32, 64])
    assert labels(panel.xaxis) == ["8", "16", "32", "64"]
    ticks_at(panel.xaxis, [500.0 * 2**k for k in range(6)])  # too long to stand side by side
    assert list(panel.xaxis.get_majorticklocs()) == [500, 2000, 8000]


def test_the_axis_ends_with_the_longest_curve_and_a_curve_with_its_shortest_repetition() -> None:
    rows = [HistoryRow("multi_walk-1", r, k, k * (1.0 + r), k, 1.0, math.nan, 0.0) for r in range(2) for k in range(5)]
    found = figures.shared_axis([frame(rows)], "time")
    assert (found.first, found.last, found.logarithmic) == (1.0, 4.0, False)
