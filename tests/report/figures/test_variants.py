"""Bars of variants: everything that was run has one, nothing else does."""

from __future__ import annotations

import pandas as pd
import pytest

from walktalk.core.errors import StudyError
from walktalk.report import figures

NAMES = {"visit": "fresh", "node": "at the nodes"}


def test_a_bar_for_every_algorithm_and_variant_that_was_run():
    rows = [("multi_walk-1", "visit", 1.0), ("multi_walk-1", "visit", 2.0), ("async_gossip-pairwise", "node", 0.5)]
    table = pd.DataFrame(rows, columns=["algorithm", "variant", "train_loss"])
    figure = figures.variants({"one": table, "two": table}, value="train_loss", y="Loss", names=NAMES)
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert sorted(h for h in heights if h == h) == [0.5, 1.5]
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == list(NAMES.values())


def test_repeated_bars_are_pale_and_spreads_have_their_number():
    rows = [
        ("multi_walk-1", "visit", 1.0, False),
        ("multi_walk-1", "visit", 2.0, False),
        ("multi_walk-1", "node", 1.0, True),
        ("multi_walk-1", "node", 2.0, True),
    ]
    table = pd.DataFrame(rows, columns=["algorithm", "variant", "train_loss", "repeated"])
    figure = figures.variants({"one": table}, value="train_loss", y="Loss", names=NAMES, notes=["Pale: repeated."])
    solid, pale = figure.axes[0].patches
    assert solid.get_alpha() is None
    assert pale.get_alpha() < 1
    assert figure.axes[0].get_title(loc="left") == "(a) one"
    assert figure.texts[0].get_text().startswith("Bars: mean\u00a0±\u00a0σ over 2 repetitions. Pale")
    assert len(figure.axes[0].collections) == 1  # the error bars


def test_nothing_to_draw():
    with pytest.raises(StudyError, match="no table"):
        figures.variants({}, value="train_loss", y="Loss", names=NAMES)
