"""Figures of theory beside measurement: drawn from small tables, with everything in them."""

from __future__ import annotations

import pandas as pd
import pytest

from walktalk.errors import StudyError
from walktalk.plots.theory_bound import bound_curves, scaling, speed_up_figure
from walktalk.plots.theory_phase import phase


def texts(figure: object) -> str:
    from matplotlib.text import Text

    return "\n".join(t.get_text() for t in figure.findobj(Text))  # type: ignore[attr-defined]


def test_bound_beside_the_measured_curve() -> None:
    table = pd.DataFrame(
        {"series": ["R=1"] * 3 + ["gossip"] * 3, "iteration": [1, 10, 100] * 2, "measured": [9, 5, 1] * 2,
         "bound": [90, 50, 10] * 2}
    )  # fmt: skip
    figure = bound_curves(table, title="a title")
    assert len(figure.axes[0].lines) == 6
    assert figure.axes[0].get_xscale() == figure.axes[0].get_yscale() == "log"
    for word in ("R=1", "gossip", "bound", "a title"):
        assert word in texts(figure)


def test_scaling_shows_both_exponents() -> None:
    table = pd.DataFrame(
        {"variable": ["T"] * 3 + ["R"] * 2, "series": "MW", "x": [1, 10, 100, 1, 2], "measured": 1.0, "bound": 2.0}
    )
    slopes = pd.DataFrame({"variable": ["T", "R"], "series": "MW", "measured": [-0.9, 0.5], "bound": [-0.7, 0.8]})
    figure = scaling(table, slopes)
    assert len(figure.axes) == 2
    assert "MW: -0.90 (bound -0.70)" in texts(figure)


def test_speed_up_has_the_linear_line() -> None:
    figure = speed_up_figure(pd.DataFrame({"series": "MW", "active": [1, 2, 4], "speed_up": [1.0, 1.9, 3.5]}))
    assert "linear" in texts(figure)


def test_phase_says_who_wins_and_by_how_much() -> None:
    table = pd.DataFrame(
        {"x": ["cycle", "complete"] * 2, "y": [0.0, 0.0, 1.0, 1.0], "ratio": [4.0, 1.0, 0.5, float("nan")],
         "winner": ["R=1", "R=4", "gossip", "nobody"]}
    )  # fmt: skip
    drawn = texts(phase({"in time": table, "per iteration": table}, x="graph", y="ζ²"))
    for cell in ("R=1\n4.0×", "gossip\n2.0×", "nobody"):
        assert cell in drawn
    with pytest.raises(StudyError, match="no table"):
        phase({}, x="graph", y="ζ²")
