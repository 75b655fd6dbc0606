"""How far a study is, on a terminal of 80 columns: every algorithm can be read."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from walktalk.api import losses_in_words
from walktalk.studies import Progress, load_spec


@pytest.mark.parametrize("study", ["quickstart", "us-five-sites"])
def test_all_algorithms_are_shown_at_80_columns(study: str) -> None:
    spec = load_spec(study)
    loss = {algorithm.title: 0.01234 * (1 + place) for place, algorithm in enumerate(spec.algorithms)}
    report = Progress(10, 20, 10, 1.0, 8.0, loss, "training")
    shown = StringIO()
    Console(file=shown, width=80, force_terminal=False).print(Text(losses_in_words(report, spec.described)))
    text = shown.getvalue().replace("\u00a0", " ")
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "…" not in text
    for value in loss.values():
        assert text.count(f"{value:.3g}") == 1
    assert text.count("·") == len(loss) - 1
