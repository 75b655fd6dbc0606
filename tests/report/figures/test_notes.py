"""Small print below a figure: true, complete, and not on top of anything."""

from __future__ import annotations

import pandas as pd
import pytest

from walktalk.report import figures
from walktalk.report.figures.style import legend_columns, styled


def runs(**repetitions: int) -> pd.DataFrame:
    rows = [(label, r, 0.5) for label, count in repetitions.items() for r in range(count)]
    return pd.DataFrame(rows, columns=["algorithm", "repetition", "train_loss"])


@pytest.mark.parametrize(
    ("counts", "words"),
    [({"a": 3, "b": 3}, "over 3 repetitions"), ({"a": 2, "b": 5}, "over 2 to 5 repetitions"), ({"a": 1}, "One rep")],
)
def test_the_number_of_repetitions_is_that_of_the_data(counts: dict[str, int], words: str) -> None:
    assert words in figures.spread_words([runs(**counts)])


def test_what_is_missing_is_counted() -> None:
    whole = runs(a=4)
    assert figures.missing_words([whole]) == ""
    one = whole.assign(train_loss=[float("nan"), 1.0, 1.0, 1.0])
    assert figures.missing_words([one]) == "1 of 4 evaluations was not a number and is left out of the means."
    three = whole.assign(train_loss=[float("nan"), 1.0, float("inf"), float("nan")])
    assert figures.missing_words([three, whole]).startswith("3 of 8 evaluations were not a number and are")


def test_note_legend_and_panel_are_one_above_another() -> None:
    figure = figures.new_figure(4.0, 3.0)
    panel = figure.subplots()
    panel.plot([1, 2], [1, 2], label="a line")
    panel.set_xlabel("Iterations")
    figures.legend_below(figure, *panel.get_legend_handles_labels())
    figures.note_below(
        figure, ["A sentence that is much too long for one line of a figure as small as this.", "", "α = 1."]
    )
    figure.canvas.draw()
    (note,), (legend,) = figure.texts, figure.legends
    assert "\n" in note.get_text()
    assert note.get_window_extent().y0 >= 0
    assert note.get_window_extent().x1 <= figure.bbox.x1
    assert note.get_window_extent().y1 <= legend.get_window_extent().y0
    assert legend.get_window_extent().y1 <= panel.get_tightbbox().y0
    assert "α\u00a0=\u00a01." in note.get_text()  # never parted


@pytest.mark.parametrize("lines", [6, 30, 120])
def test_a_legend_of_many_algorithms_leaves_the_panel_its_room(lines: int) -> None:
    """A study of the whole family, each with several codecs, had no place left for a panel and no figure at all."""
    with styled():
        figure = figures.new_figure(7.6, 3.3)
        panel = figure.subplots()
        for k in range(lines):
            panel.plot([1, 2], [1, k], label=f"The algorithm number {k}, with a codec")
        figures.legend_below(figure, *panel.get_legend_handles_labels())
        figures.note_below(figure, ["One repetition."])
        figure.canvas.draw()
        assert panel.get_window_extent().height / figure.dpi > 1.3
        assert figure.legends[0].get_window_extent().y1 <= panel.get_tightbbox().y0


def test_without_sentences_there_is_no_note() -> None:
    figure = figures.new_figure(4.0, 3.0)
    figures.note_below(figure, ["", ""])
    assert not figure.texts


def test_a_legend_has_as_few_rows_as_fit() -> None:
    assert legend_columns(["One walk"] * 4, 7.2) == 4
    assert legend_columns(["One walk"] * 5, 4.0) == 3
    assert legend_columns(["a name that is far too long for a figure"] * 2, 3.0) == 1
