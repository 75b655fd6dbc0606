"""Predicted intervals in words: both ends where both say something, else the one that does."""

from __future__ import annotations

from math import inf

import pytest

from walktalk.advisor import interval
from walktalk.cli.advise import rows_of


@pytest.mark.parametrize(
    ("objective", "low", "high", "words"),
    [
        ("bits", 8 * 47.6, 8 * 293e3, "up to 293 kB"),
        ("bits", 8 * 100e3, 8 * 293e3, "100 kB to 293 kB"),
        ("time", 0.0, 60.0, "up to 1 min"),
        ("time", 90.0, 7200.0, "up to 2 h"),
        ("time", 90.0, 120.0, "1.5 min to 2 min"),
        ("iterations", 40, inf, "40 iterations or more"),
        ("iterations", 40, 900, "40 iterations to 900 iterations"),
    ],
)
def test_an_end_that_says_nothing_is_left_out(objective, low, high, words):
    assert interval(objective, low, high) == words


def test_the_printed_table_says_it_in_the_same_way():
    same = {"value": 100.0, "low": 100.0, "high": 100.0}
    expected = {"iterations": {"value": 50.0, "low": 40.0, "high": 60.0}, "time": same}
    expected |= {"bits": {"value": 8e5, "low": 400.0, "high": None}, "loss": {"value": 0.1}}
    assert rows_of({"expected": expected}) == [
        ("iterations", "50", "40 to 60"),
        ("time", "1.67 min", ""),
        ("data sent", "100 kB", "50 bytes or more"),
    ]
