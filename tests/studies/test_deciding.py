"""Who is better by few repetitions: it is said clearly where it is, and rarely where it is not."""

from __future__ import annotations

import numpy as np
import pytest

from walktalk.studies.results.summary import MOST, decide


def rate_of_clear(gap: float, spreads: tuple[float, float], count: int, seed: int = 0) -> float:
    """How often two algorithms whose costs differ by a factor e^gap are told apart."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(800):
        a, b = (np.exp(rng.normal(m, s, count)) for m, s in ((0.0, spreads[0]), (gap, spreads[1])))
        best, other = (a, b) if a.mean() < b.mean() else (b, a)
        one = decide("iteration", best, other)
        assert one is not None
        found.append(one.clear)
    return float(np.mean(found))


@pytest.mark.parametrize("spreads", [(0.1, 0.1), (0.03, 0.3), (0.2, 0.2)])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_where_there_is_no_gap_hardly_one_of_ten_is_said_to_be_clear(spreads: tuple[float, float], count: int) -> None:
    """Twice the standard error says so of 12 to 30 of 100 with two or three repetitions, as Student knew."""
    assert rate_of_clear(0.0, spreads, count) <= 0.09


def test_a_wide_gap_is_clear_with_three() -> None:
    assert rate_of_clear(1.0, (0.2, 0.2), 3) > 0.9


def test_how_many_repetitions_would_tell() -> None:
    """With as many, it mostly is clear; with a wider gap fewer are enough; with none of it no number is."""
    one = decide("time", [80.0, 100.0, 125.0], [110.0, 130.0, 160.0])
    assert one is not None
    assert not one.clear
    assert 0.8 < one.chance < 0.975
    assert one.needed is not None
    assert 4 <= one.needed <= 20
    spread = float(np.log([80.0, 100.0, 125.0]).std(ddof=1))
    assert rate_of_clear(float(np.log(132 / 100)), (spread, spread), one.needed) > 0.7
    wider = decide("time", [80.0, 100.0, 125.0], [140.0, 170.0, 200.0])
    assert wider is not None
    assert wider.clear or (wider.needed is not None and wider.needed < one.needed)
    hair = decide("time", [80.0, 100.0, 125.0], [80.0, 100.0, 125.1])
    assert hair is not None
    assert hair.needed is None
    assert MOST == 1000


def test_accuracy_is_better_where_it_is_more_and_a_loss_may_be_negative() -> None:
    more = decide("accuracy", [0.95, 0.951, 0.949], [0.7, 0.71, 0.69])
    below = decide("loss", [-5.0, -5.1, -4.9], [-1.0, -1.1, -0.9])
    assert more is not None
    assert more.clear
    assert below is not None
    assert below.clear


def test_without_randomness_every_gap_counts_and_one_repetition_says_nothing() -> None:
    same = decide("bits", [10.0, 10.0], [11.0, 11.0])
    assert same is not None
    assert same.clear
    equal = decide("bits", [10.0, 10.0], [10.0, 10.0])
    assert equal is not None
    assert not equal.clear
    assert decide("bits", [10.0], [20.0, 30.0]) is None
