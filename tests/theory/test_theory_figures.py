"""Figures of theory beside measurement: drawn from small tables, with everything in them."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
import pytest

from walktalk.core.errors import StudyError
from walktalk.report import figures
from walktalk.report.figures.theory import apart, bound_curves, scaling, speed_up_figure
from walktalk.report.figures.variants import COLOURS, phase, readable_on


def texts(figure: object) -> str:
    from matplotlib.text import Text

    return "\n".join(t.get_text() for t in figure.findobj(Text))  # type: ignore[attr-defined]


def test_bound_beside_the_measured_curve() -> None:
    table = pd.DataFrame(
        {
            "series": ["R=1"] * 3 + ["gossip"] * 3,
            "iteration": [1, 10, 100] * 2,
            "measured": [9, 5, 1] * 2,
            "bound": [90, 50, 10] * 2,
        }
    )
    figure = bound_curves(table, title="a title")
    assert len(figure.axes[0].lines) == 4
    assert figure.axes[0].get_xscale() == figure.axes[0].get_yscale() == "log"
    for word in ("One walk", "Gossip with everybody", "bound, same colour", "a title"):
        assert word in texts(figure)


def test_scaling_shows_both_exponents() -> None:
    table = pd.DataFrame(
        {"variable": ["T"] * 3 + ["R"] * 2, "series": "MW", "x": [1, 10, 100, 1, 2], "measured": 1.0, "bound": 2.0}
    )
    slopes = pd.DataFrame({"variable": ["T", "R"], "series": "MW", "measured": [-0.9, 0.5], "bound": [-0.7, 0.8]})
    figure = scaling(table, slopes, titles={"T": "V = 16"}, notes=["Mean of two."])
    assert len(figure.axes) == 2
    for words in ("−0.90 (−0.70)", "bound, same colour", "(a) V = 16", "(b) R", "Iterations T", "Mean of two."):
        assert words in texts(figure)
    assert [text.get_text() for text in figure.axes[1].get_xticklabels()] == ["1", "2"]


def test_where_r_changes_along_a_line_every_mark_has_its_own_colour() -> None:
    figure = speed_up_figure(pd.DataFrame({"series": "MW", "active": [1, 2, 4], "speed_up": [1.0, 1.9, 3.5]}))
    usual = figures.colours(["multi_walk-1", "multi_walk-2", "multi_walk-4"])
    assert [line.get_color() for line in figure.axes[0].lines[-3:]] == list(usual.values())
    assert "linear" in texts(figure)


def test_exponents_beside_a_panel_do_not_overlap() -> None:
    places = apart([0.5, 0.5, 0.1, 0.52], 0.05)
    ordered = sorted(places)
    assert all(b - a > 0.05 - 1e-6 for a, b in pairwise(ordered))
    assert places[2] == 0.1  # nobody is near
    assert places[0] < places[1] < places[3]


def test_phase_says_who_wins_and_by_how_much() -> None:
    table = pd.DataFrame(
        {
            "x": ["cycle", "complete"] * 2,
            "y": [0.0, 0.0, 1.0, 1.0],
            "ratio": [4.0, 1.0, 0.5, float("nan")],
            "winner": ["R=1", "R=4", "gossip", "nobody"],
        }
    )
    drawn = texts(phase({"in time": table, "per iteration": table}, x="graph", y="ζ²"))
    for cell in ("R=1\n4.0×", "gossip\n2.0×", "nobody"):
        assert cell in drawn
    with pytest.raises(StudyError, match="no table"):
        phase({}, x="graph", y="ζ²")


def test_the_colour_bar_says_that_something_lies_beyond_its_end() -> None:
    def drawn(*ratios: float) -> object:
        table = pd.DataFrame({"x": [str(k) for k in range(len(ratios))], "y": 0.0, "ratio": ratios, "winner": "R=1"})
        return phase({"In time": table}, x="Graph", y="ζ²")

    beyond = drawn(70.0, 0.5)
    assert beyond.axes[-1].get_yticklabels()[-1].get_text() == "32×"  # type: ignore[attr-defined]
    assert "R=1\n>32×" in texts(beyond)
    assert beyond.axes[-1]._colorbar.extend == "max"  # type: ignore[attr-defined]
    within = drawn(18.6, 0.5)
    assert within.axes[-1]._colorbar.extend == "neither"  # type: ignore[attr-defined]
    assert "(a) In time" in texts(within)


def test_text_stands_out_from_its_cell() -> None:
    """At least 4.5 to 1, as the WCAG asks for text."""
    for share in range(0, 101, 5):
        colour = COLOURS(share / 100)
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
        luminance = sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
        light = readable_on(colour) == "white"
        contrast = 1.05 / (luminance + 0.05) if light else (luminance + 0.05) / 0.05
        assert contrast >= 4.5
