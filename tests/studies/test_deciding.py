"""Who is better by few repetitions: it is said clearly where it is, and rarely where it is not."""

from __future__ import annotations

import numpy as np
import pytest

from walktalk.studies.results.summary import CLEAR, MOST, Known, decide, holm, known_from


def rate_of_clear(gap: float, spreads: tuple[float, float], count: int, seed: int = 0) -> float:
    """How often two algorithms whose costs differ by a factor e^gap are told apart."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(800):
        a, b = (np.exp(rng.normal(m, s, count)) for m, s in ((0.0, spreads[0]), (gap, spreads[1])))
        best, other = (a, b) if a.mean() < b.mean() else (b, a)
        one = decide("iteration", best, other)
        assert one is not None
        found.append(one.chance >= CLEAR)
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
    assert 0.8 < one.chance < 0.975
    needed = one.needed()
    assert needed is not None
    assert 4 <= needed <= 20
    assert (one.needed(0.995) or MOST) > needed  # of one of five that are read together
    spread = float(np.log([80.0, 100.0, 125.0]).std(ddof=1))
    assert rate_of_clear(float(np.log(132 / 100)), (spread, spread), needed) > 0.7
    wider = decide("time", [80.0, 100.0, 125.0], [140.0, 170.0, 200.0])
    assert wider is not None
    assert wider.chance >= CLEAR or (wider.needed() or MOST) < needed
    hair = decide("time", [80.0, 100.0, 125.0], [80.0, 100.0, 125.1])
    assert hair is not None
    assert hair.needed() is None
    assert MOST == 1000


def test_accuracy_is_better_where_it_is_more_and_a_loss_may_be_negative() -> None:
    more = decide("accuracy", [0.95, 0.951, 0.949], [0.7, 0.71, 0.69])
    below = decide("loss", [-5.0, -5.1, -4.9], [-1.0, -1.1, -0.9])
    assert more is not None
    assert more.chance >= CLEAR
    assert below is not None
    assert below.chance >= CLEAR


def test_without_randomness_every_gap_counts_and_one_repetition_says_nothing() -> None:
    same = decide("bits", [10.0, 10.0], [11.0, 11.0])
    assert same is not None
    assert same.chance == 1.0
    assert same.needed() is None
    equal = decide("bits", [10.0, 10.0], [10.0, 10.0])
    assert equal is not None
    assert equal.chance == 0.5
    assert decide("bits", [10.0], [20.0, 30.0]) is None


def test_what_is_read_together_is_corrected_for_how_many_it_is() -> None:
    assert holm([0.98]) == [0.98]
    assert holm([]) == []
    found = holm([0.99, 0.5, 0.999, 0.97])  # p: 0.02, 1, 0.002, 0.06; times 3, 1, 4, 2
    assert found == pytest.approx([0.97, 0.5, 0.996, 0.94])
    assert holm([0.99, 0.9895]) == pytest.approx([0.98, 0.98])  # none is surer than the one before it
    rng = np.random.default_rng(1)
    wrong = sum(max(holm(list(1 - rng.random(10) / 2))) >= CLEAR for _ in range(2000)) / 2000
    assert 0.03 < wrong < 0.07  # of ten that are all nothing, one or more is called clear


def test_splits_count_and_not_the_repetitions_on_them() -> None:
    """Two splits of the data on which the two differ by unlike amounts: many repetitions of each prove nothing."""
    rng = np.random.default_rng(2)
    splits = [0] * 10 + [1] * 10
    a = np.exp(rng.normal(0.0, 0.02, 20))
    b = a * np.exp(rng.normal([0.5] * 10 + [0.1] * 10, 0.02))
    plain, known = decide("loss", a, b), decide("loss", a, b, splits)
    assert plain is not None
    assert known is not None
    assert plain.chance > CLEAR > known.chance
    # Where every split moves both alike, ten of them tell apart what repetitions alone could not.
    hard = np.exp(rng.normal(0.0, 0.5, 10))
    one, other = hard * np.exp(rng.normal(0.0, 0.02, 10)), hard * np.exp(rng.normal(0.1, 0.02, 10))
    apart, together = decide("loss", one, other), decide("loss", one, other, range(10))
    assert apart is not None
    assert together is not None
    assert together.chance > CLEAR > apart.chance


@pytest.mark.parametrize(("differ", "least", "most"), [(0.0, 20.0, 100.0), (1.0, 0.3, 6.0)])
def test_many_algorithms_tell_together_how_runs_spread(differ: float, least: float, most: float) -> None:
    rng = np.random.default_rng(3)
    groups = [np.exp(rng.normal(0, 0.1 * np.exp(differ * rng.normal()), 3)) for _ in range(60)]
    known = known_from(groups)
    assert 0.05 < known.spread < 0.2
    assert least <= known.freedom <= most


def test_of_few_algorithms_what_other_studies_have_shown_counts() -> None:
    assert known_from([[1.0, 1.1], [2.0, 2.1]]) == Known(0.2)
