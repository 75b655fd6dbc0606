"""Where a pilot's loss leads: on curves whose end is known."""

from __future__ import annotations

from math import exp, inf, log, nan

import numpy as np
import pytest

from walktalk.advisor.learning_curve import LearningCurve, Scale, Seen

SCALE = Scale(start=10.0, floor=0.0, target=0.1)
GRID = np.geomspace(1, 1000, 80)


def curve(loss: np.ndarray, upto: float = inf, scale: Scale = SCALE, **settings: float) -> LearningCurve:
    """A pilot of one iteration a second that is evaluated whenever it is measured."""
    made = LearningCurve(scale, **settings)  # type: ignore[arg-type]
    for cost, value in zip(GRID, loss, strict=True):
        if cost <= upto:
            made.evaluated(Seen(float(cost), float(cost), 8.0 * cost, float(value)), "iterations")
            made.add(float(cost), float(value), float(value))
    return made


def test_progress_is_the_log_of_the_excess() -> None:
    assert SCALE.progress(10.0) == 0.0
    assert SCALE.goal == pytest.approx(log(100))
    assert SCALE.progress(nan) == -inf
    assert Scale(10.0, 1.0, 2.0).progress(1.0) > 10  # below the floor is just very far


def test_an_exponential_descent_is_continued() -> None:
    halfway = curve(10 * np.exp(-GRID / 100), upto=150)
    assert halfway.arrived is None
    assert halfway.expected_cost() == pytest.approx(100 * log(100), rel=0.02)
    assert halfway.expected_loss(300.0) == pytest.approx(10 * exp(-3), rel=0.1)


def test_arrival_is_the_first_evaluation_that_shows_the_target() -> None:
    """As a run stops there, however lucky the moment was; what is measured between evaluations is no arrival."""
    loss = 10 * np.exp(-GRID / 100)
    whole = curve(loss)
    first = next(cost for cost, value in zip(GRID, loss, strict=True) if value <= SCALE.target)
    assert whole.arrived == whole.expected_cost() == pytest.approx(first)
    assert whole.arrival is not None
    assert whole.arrival.of("bits") == pytest.approx(8 * first)
    unseen = LearningCurve(SCALE)
    unseen.add(1.0, 0.0, 0.0)
    assert unseen.arrived is None
    lucky = loss.copy()
    lucky[20] = 0.0
    assert curve(lucky).arrived == pytest.approx(GRID[20])


def test_with_a_budget_nothing_but_the_budget_ends_it() -> None:
    whole = curve(10 * np.exp(-GRID / 100), to_the_target=False)
    assert whole.arrived is None
    assert whole.final_loss == pytest.approx(10 * exp(-10))
    assert whole.expected_loss(GRID[-1]) == whole.final_loss


def test_a_plateau_promises_nothing() -> None:
    flat = curve(np.maximum(10 * np.exp(-GRID / 20), 1.0))
    assert flat.arrived is None
    assert flat.expected_cost() > 50_000
    assert flat.expected_loss(5000.0) == pytest.approx(1.0, rel=0.01)


def test_divergence_is_final() -> None:
    gone = curve(10 * np.exp(GRID / 100))
    assert gone.lost
    assert gone.expected_cost() == inf
    assert gone.expected_loss(10.0) == inf
    assert curve(np.full(80, nan), upto=20).lost


def test_before_it_has_settled_a_pilot_is_silent() -> None:
    falling = 10 * np.exp(-GRID / 100)
    assert curve(falling, upto=50, settled=100.0).silent
    assert not curve(falling, upto=150, settled=100.0).silent
    assert curve(np.full(80, 10.0)).silent


def test_a_lag_is_looked_through_by_the_mean_of_the_walks() -> None:
    """The aggregated model has not moved, the walks have: they tell the pace, and the lag is added."""
    made = LearningCurve(SCALE, lag=50.0)
    for cost in GRID[GRID <= 100]:
        made.add(float(cost), 10.0, float(10 * np.exp(-cost / 100)))
    assert made.expected_cost() == pytest.approx(100 * log(100) + 50, rel=0.15)
