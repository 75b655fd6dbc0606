"""Final loss against R: everything that was run is there, gossip across."""

from __future__ import annotations

import pandas as pd
import pytest

from walktalk.core.errors import StudyError
from walktalk.report import figures


def ends(*rows: tuple[str, float]) -> pd.DataFrame:
    return pd.DataFrame(
        [(label, k, loss) for k, (label, loss) in enumerate(rows)], columns=["algorithm", "repetition", "train_loss"]
    )


def test_a_mark_for_every_r_and_a_line_for_gossip():
    table = ends(
        ("multi_walk-8", 1.2),
        ("multi_walk-8", 1.4),
        ("multi_walk-1", 0.4),
        ("async_gossip-pairwise", 1.0),
        ("multi_walk-4", float("nan")),
    )
    panel = figures.threshold(table, 4.5, notes=["Complete graph."]).axes[0]
    assert panel.get_xscale() == "log"
    line = panel.lines[0]
    assert line.get_xdata().tolist() == [1, 8]
    assert line.get_ydata().tolist() == pytest.approx([0.4, 1.3])
    assert [text.get_text() for text in panel.get_xticklabels()] == ["1", "8"]
    named = [text.get_text() for text in panel.figure.legends[0].get_texts()]
    assert named == ["Any number of walks", "Gossip in pairs", "√(V/p) = 4.5"]


def test_without_walks_there_is_nothing_to_draw():
    with pytest.raises(StudyError, match="no run of Multi-Walk"):
        figures.threshold(ends(("async_gossip-pairwise", 1.0)), 4.5)
