"""Bars of variants: everything that was run has one, nothing else does."""

from __future__ import annotations

import pandas as pd
import pytest

from walktalk import plots
from walktalk.errors import StudyError

NAMES = {"visit": "fresh", "node": "at the nodes"}


def test_a_bar_for_every_algorithm_and_variant_that_was_run():
    rows = [("multi_walk-1", "visit", 1.0), ("multi_walk-1", "visit", 2.0), ("async_gossip-pairwise", "node", 0.5)]
    table = pd.DataFrame(rows, columns=["algorithm", "variant", "train_loss"])
    figure = plots.variants({"one": table, "two": table}, value="train_loss", y="Loss", names=NAMES)
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert sorted(h for h in heights if h == h) == [0.5, 1.5]
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == list(NAMES.values())


def test_nothing_to_draw():
    with pytest.raises(StudyError, match="no table"):
        plots.variants({}, value="train_loss", y="Loss", names=NAMES)
