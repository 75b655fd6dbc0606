"""Intervals for a run to come: they hold what they say where the law of runs is known."""

from __future__ import annotations

from math import exp, inf

import numpy as np
import pytest

from walktalk.advisor.finals import predict


@pytest.mark.parametrize("count", [2, 3, 8])
def test_95_of_100_runs_to_come_are_inside(count: int) -> None:
    """With log-normal costs: of 4,000 questions, each with its own runs, nearly all must hold."""
    rng = np.random.default_rng(count)
    runs = np.exp(rng.normal(3.0, 0.3, size=(4000, count + 1)))
    inside = [(found := predict(row[:-1])).low <= row[-1] <= found.high for row in runs]
    assert 0.94 <= np.mean(inside) <= 0.985


def test_what_was_seen_is_inside_and_agreement_by_luck_proves_little() -> None:
    found = predict([100.0, 100.0, 100.0])
    assert found.value == 100.0
    assert found.low < 95 < 105 < found.high
    assert predict([-1.0, -2.0, -1.5]).low < -2.0  # a loss may be negative
    one = predict([50.0])
    assert one.low < 50.0 / exp(0.3) < 50.0 * exp(0.3) < one.high
    assert predict([10.0, 12.0], guessed=True).high > predict([10.0, 12.0]).high
    assert predict([inf]).high == inf
