"""Where a pilot's loss leads: on curves whose end is known."""

from __future__ import annotations

from math import exp, inf, log, nan

import numpy as np
import pytest

from walktalk.advisor.course import Course, Scale

SCALE = Scale(start=10.0, floor=0.0, target=0.1)
GRID = np.geomspace(1, 1000, 80)


def course(loss: np.ndarray, upto: float = inf, scale: Scale = SCALE, **settings: float) -> Course:
    made = Course(scale, **settings)
    for cost, value in zip(GRID, loss, strict=True):
        if cost <= upto:
            made.add(float(cost), (int(cost), float(cost), 0.0), float(value), float(value))
    return made


def test_progress_is_the_log_of_the_excess() -> None:
    assert SCALE.progress(10.0) == 0.0
    assert SCALE.goal == pytest.approx(log(100))
    assert SCALE.progress(nan) == -inf
    assert Scale(10.0, 1.0, 2.0).progress(1.0) > 10  # below the floor is just very far


def test_an_exponential_descent_is_continued() -> None:
    halfway = course(10 * np.exp(-GRID / 100), upto=150)
    assert halfway.arrived is None
    assert halfway.expected_cost() == pytest.approx(100 * log(100), rel=0.15)
    assert halfway.expected_loss(300.0) == pytest.approx(
        10 * exp(-3), rel=0.6
    )  # the mean over the last quarter is behind


def test_arrival_is_of_the_mean_over_the_last_quarter() -> None:
    loss = 10 * np.exp(-GRID / 100)
    loss[20] = 0.0  # one lucky moment
    whole = course(loss)
    assert whole.arrived is not None
    assert 100 * log(100) < whole.arrived < 1.25 * 100 * log(100)
    assert whole.expected_cost() == whole.arrived


def test_a_plateau_promises_nothing() -> None:
    flat = course(np.maximum(10 * np.exp(-GRID / 20), 1.0))
    assert flat.arrived is None
    assert flat.expected_cost() > 50_000
    assert flat.expected_loss(5000.0) == pytest.approx(1.0, rel=0.01)


def test_divergence_is_final() -> None:
    gone = course(10 * np.exp(GRID / 100))
    assert gone.lost
    assert gone.expected_cost() == inf
    assert gone.expected_loss(10.0) == inf
    assert course(np.full(80, nan), upto=20).lost


def test_before_it_has_settled_a_pilot_is_silent() -> None:
    falling = 10 * np.exp(-GRID / 100)
    assert course(falling, upto=50, settled=100.0).silent
    assert not course(falling, upto=150, settled=100.0).silent
    assert course(np.full(80, 10.0)).silent


def test_a_lag_is_looked_through_by_the_mean_of_the_walks() -> None:
    """The aggregated model has not moved, the walks have: they tell the pace, and the lag is added."""
    made = Course(SCALE, lag=50.0)
    for cost in GRID[GRID <= 100]:
        made.add(float(cost), (int(cost), float(cost), 0.0), 10.0, float(10 * np.exp(-cost / 100)))
    assert made.expected_cost() == pytest.approx(100 * log(100) + 50, rel=0.15)
