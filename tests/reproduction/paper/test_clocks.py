"""reproduction/paper_clocks.py: the clock of a run without its arithmetic, and what it says of invented histories."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "reproduction"))

import paper_clocks
from walktalk.studies import build_foundation, make_spec

BITS = 8_000_000  # of a model
COLUMNS = ["algorithm", "repetition", "iteration", "time", "bits", "train_loss", "model_bits", "mean_train_loss"]


def content(**timing: float) -> dict:
    return {
        "name": "clock",
        "network": {"topology": "complete", "nodes": 5},
        "timing": {"model": "network", "compute": 0.2, "spread": 0.0, "latency": 0.0, "bandwidth": 1e15, **timing},
        "algorithms": [{"name": "multi_walk", "walks": [1, 5]}, {"name": "async_gossip", "mixing": "pairwise"}],
        "stop": {"iterations": 200},
    }


def clock(label: str, **timing: float) -> paper_clocks.Clock:
    spec = make_spec(content(**timing))
    plan = next(plan for plan in build_foundation(spec).algorithms if plan.label == label)
    return paper_clocks.Clock(spec, plan, 0, BITS // 8, 200)


def test_one_walk_takes_its_trainings_and_its_hops():
    assert clock("multi_walk-1").at(150) == pytest.approx(30.0, rel=1e-3)
    assert clock("multi_walk-1", compute=0.4).at(150) == pytest.approx(60.0, rel=1e-3)
    slow = clock("multi_walk-1", bandwidth=BITS / 0.1)  # a tenth of a second each; a lazy step sends nothing
    assert 30.0 < slow.at(150) <= 45.0
    latency = clock("multi_walk-1", latency=0.1).at(150)
    assert latency == pytest.approx(slow.at(150), rel=1e-3)


def test_the_losses_that_were_measured_are_read_by_the_new_clock():
    rows = [
        (label, 0, iteration, 9.0, 0, loss, 2.0 * BITS * iteration, loss - 0.1)
        for label in ("multi_walk-1", "multi_walk-5", "async_gossip-pairwise")
        for iteration, loss in ((0, 2.0), (100, 1.55), (200, 1.5))
    ]
    history = pd.DataFrame(rows, columns=COLUMNS)
    assert paper_clocks.model_bytes(history) == BITS // 8
    runs = paper_clocks.Runs("8", "complete", history, content(), (1.5,))
    lines = list(paper_clocks.lines(runs, {"slow": {"compute": 0.4}}))
    found = {(line["algorithm"], line["model"]): (line["iteration"], line["seconds"]) for line in lines}
    assert found["multi_walk-1", "aggregated"] == (200, pytest.approx(80.0, rel=1e-3))
    assert found["multi_walk-1", "mean"] == (100, pytest.approx(40.0, rel=1e-3))
    gossip = found["async_gossip-pairwise", "mean"][1]
    assert gossip == pytest.approx(8.0, rel=0.1)  # five nodes train at once
    assert f"{gossip / 80:.2f} *{gossip / 40:.2f}*" in paper_clocks.page(lines)
