"""What reproduction/paper_verdicts.py says of invented runs."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "reproduction"))

import paper_verdicts

SPEC = "repetitions: 3\nstop: {iterations: 1200}\ntiming: {compute: 0.05}\n"
ENDS = {"multi_walk-1": [1.0, 1.1, 1.2], "multi_walk-4": [2.0, 2.1, 2.2], "async_gossip-pairwise": [2.0, 2.1]}


def history() -> pd.DataFrame:
    """Losses that fall by 1 in the end; one run of gossip stops before."""
    rows = [
        (label, repetition, iteration, iteration / 10, 0, loss, 0.5, 0.0)
        for label, ends in ENDS.items()
        for repetition, end in enumerate(ends)
        for iteration, loss in ((0, 9.0), (900, end + 1), (1000, end + 0.5), (1200, end))
    ]
    rows += [("async_gossip-pairwise", 2, iteration, 0.0, 0, 3.2, 0.5, 0.0) for iteration in (0, 900)]
    names = ["algorithm", "repetition", "iteration", "time", "bits", "train_loss", "test_accuracy", "consensus"]
    return pd.DataFrame(rows, columns=names)


def test_means_have_intervals_and_say_what_is_missing(tmp_path):
    folder = tmp_path / "fig5-7-group-norm" / "cycle-alpha0.1"
    folder.mkdir(parents=True)
    (folder / "spec.yaml").write_text(SPEC)
    history().to_csv(folder / "history.csv", index=False)
    lines = list(paper_verdicts.section(folder / "history.csv"))
    half = 4.302653 * 0.1 / math.sqrt(3)  # Student's t with two degrees of freedom
    end = next(line for line in lines if line.startswith("| end |"))
    assert f"1.100 ± {half:.3f} | 2.100 ± {half:.3f} | 2.050 ± 0.635 (n = 2)" in end
    before = next(line for line in lines if line.startswith("| before the rate falls |"))
    assert before.count("(n =") == 0
    assert not any("mean of the models" in line for line in lines)  # which the table does not have
    standing = next(line for line in lines if line.startswith("- end, minus gossip"))
    assert "R = 1 −0.950" in standing
    assert "ahead)" in standing
    assert standing.endswith("even)")


def test_a_study_with_failures_is_set_against_itself_without(tmp_path):
    for name, more in (("fig9-survivors", 0.0), ("fig9-survivors-no-failures", 0.5)):
        folder = tmp_path / name / "erdos_renyi"
        folder.mkdir(parents=True)
        (folder / "spec.yaml").write_text(SPEC)
        rows = history()
        rows.assign(train_loss=rows.train_loss + more).to_csv(folder / "history.csv", index=False)
    lines = list(paper_verdicts.section(tmp_path / "fig9-survivors" / "erdos_renyi" / "history.csv"))
    (standing,) = (line for line in lines if line.startswith("- end, minus the same without failures"))
    assert "R = 1 −0.500" in standing
    assert standing.count("−0.500 (") == 3
    calm = tmp_path / "fig9-survivors-no-failures" / "erdos_renyi" / "history.csv"
    assert not any("without failures" in line for line in paper_verdicts.section(calm))


@pytest.mark.parametrize(("mine", "said"), [([5.0, 5.1], "behind"), ([0.0, 0.1], "ahead"), ([1.0, 3.2], "even")])
def test_who_is_ahead(mine, said):
    import numpy as np

    assert said in paper_verdicts.against(np.array(mine), np.array([2.0, 2.1, 2.2]), 0.99)
    assert "even" in paper_verdicts.against(np.array(mine), np.array([2.0, 2.1, 2.2]), 0.97)
