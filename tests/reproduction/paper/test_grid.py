"""The paper's panels: told apart by their titles, comparable by their axes, and with a note that is true."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from walktalk.records import HistoryRow, frame
from walktalk.report import figures
from walktalk.reproduction.paper.drawing.family import fall_words, rate_falls, setting_of
from walktalk.reproduction.paper.drawing.figures import Cell, Shown, grid, titles

SPEC = {
    "task": {"name": "digits", "alpha": 1.0},
    "network": {"nodes": 20},
    "stop": {"time": 900.0, "iterations": None},
    "schedule": {"decay_at": [0.75, 0.9], "factor": 0.1},
}


def history(low: float = 0.5, broken: int = 0) -> pd.DataFrame:
    rows = []
    for label in ("async_gossip-pairwise", "multi_walk-4"):
        for repetition in range(2):
            for k in range(1, 11):
                loss = math.nan if k <= broken and repetition else 3.0 * (low / 3.0) ** (k / 10) + 0.01 * repetition
                rows.append(HistoryRow(label, repetition, k, 90.0 * k, k, loss, 1 / (1 + loss), 0.0))
    return frame(rows)


def note(figure: object) -> str:
    (text,) = (text.get_text() for text in figure.texts)  # type: ignore[attr-defined]
    return str(text).replace("\n", " ").replace("\u00a0", " ")


def test_no_two_panels_have_one_title():
    panels = [Shown("Cycle", history()), Shown("Complete graph", history())]
    one = [Cell(0, x, value) for x in figures.AXES for value in ("train_loss", "test_accuracy")]
    assert len(set(titles(one, panels[:1]))) == 6
    two = [Cell(panel, "iteration", value) for panel in (0, 1) for value in ("train_loss", "test_accuracy")]
    assert titles(two, panels) == ["Cycle: loss", "Cycle: accuracy", "Complete graph: loss", "Complete graph: accuracy"]
    each = [Cell(panel, "iteration", "train_loss") for panel in (0, 1)]
    assert titles(each, panels) == ["Cycle", "Complete graph"]


def test_losses_are_alike_within_a_row_and_logarithmic_in_all():
    panels = [Shown(str(k), history(low)) for k, low in enumerate((0.2, 0.6, 1.8, 2.0))]
    axes = grid(panels, [[Cell(2 * row + k, "iteration", "train_loss") for k in (0, 1)] for row in (0, 1)]).axes
    assert {panel.get_yscale() for panel in axes} == {"log"}
    assert axes[0].get_ylim() == axes[1].get_ylim() != axes[2].get_ylim() == axes[3].get_ylim()
    assert [bool(panel.get_xlabel()) for panel in axes] == [False, False, True, True]
    assert [bool(panel.get_ylabel()) for panel in axes] == [True, False, True, False]


def test_one_loss_a_row_is_alike_down_the_column():
    panels = [Shown(str(k), history(low)) for k, low in enumerate((0.2, 0.6))]
    values = ("train_loss", "test_accuracy")
    axes = grid(panels, [[Cell(k, "iteration", value) for value in values] for k in (0, 1)]).axes
    assert axes[0].get_ylim() == axes[2].get_ylim()
    assert axes[1].get_ylim() == axes[3].get_ylim() == (0, 100)


def test_failures_falls_of_the_rate_and_what_would_have_been():
    panel = Shown(
        "Erdős–Rényi (0.3)",
        history(broken=2),
        ((300.0, "killed"), (600.0, "killed")),
        rate_falls(SPEC),
        setting_of(SPEC),
        history(0.4),
    )
    figure = grid([panel], [[Cell(0, "time", value) for value in ("train_loss", "test_accuracy")]])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "4 walks",
        "Gossip in pairs",
        "killed",
        "thin: without failures",
    ]
    upright = [line.get_xdata()[0] for line in figure.axes[0].lines if len(set(line.get_xdata())) == 1]
    assert sorted(upright) == [300.0, 600.0, 675.0, 810.0]
    thin = [line for line in figure.axes[0].lines if line.get_linewidth() == 0.8]
    assert {line.get_color() for line in thin} == set(figures.colours(history()["algorithm"]).values())
    words = note(figure)
    for part in (
        "Erdős–Rényi (0.3); Handwritten digits; V = 20 nodes; α = 1.",
        "over 2 repetitions",
        "4 of 80 evaluations",
        "the learning rate falls to a tenth, at 75 % and 90 % of a run",
    ):
        assert part in words


def test_a_setting_that_differs_is_not_in_the_note():
    settings = [setting_of({**SPEC, "task": {"name": "digits", "alpha": alpha}}) for alpha in (1, 10)]
    panels = [Shown(setting[-1], history(), setting=setting) for setting in settings]
    words = note(grid(panels, [[Cell(0, "iteration", "train_loss"), Cell(1, "iteration", "train_loss")]]))
    assert "V = 20 nodes" in words
    assert "α" not in words


def test_the_rate_falls_where_the_specification_says():
    found = rate_falls(SPEC)
    assert found is not None
    assert (found.axis, found.places) == ("time", [675.0, 810.0])
    assert rate_falls({**SPEC, "stop": {"time": 900.0, "iterations": 100}}) is None  # whichever is met first
    assert rate_falls({**SPEC, "schedule": {}}) is None
    assert fall_words([], marked=False) == ""
    assert fall_words([found], marked=False) == "The learning rate falls to a tenth at 75 % and 90 % of a run."


@pytest.mark.parametrize("x", figures.AXES)
def test_histories_that_begin_and_end_elsewhere_share_their_axis(x: figures.Axis):
    short = history().query("iteration <= 5")
    axes = grid([Shown("a", history()), Shown("b", short)], [[Cell(0, x, "train_loss"), Cell(1, x, "train_loss")]]).axes
    assert axes[0].get_xlim() == axes[1].get_xlim()
