"""The scripts of the GPU runs, in small and on a CPU: that they come to their files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.learning.test_language import data, models  # noqa: F401  # tiny models of transformers, and sentences

ROOT = Path(__file__).resolve().parents[3]


def script(name: str, *words: str) -> str:
    """Runs one of them, as a person would."""
    command = [sys.executable, str(ROOT / "reproduction" / f"{name}.py"), *words, "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_failures(tmp_path):
    script("paper_failures_gpu", "--digits", "--out", str(tmp_path), "--repetitions", "1", "--compute", "20")
    events = pd.read_csv(tmp_path / "events.csv")
    for label in ("multi_walk-4", "multi_walk-15"):
        mine = events[events["algorithm"] == label]
        assert list(mine[mine["event"] == "kill"]["time"]) == [300.0, 600.0]
        elected = mine[mine["event"] == "elected"]["time"]
        assert any(300 < t < 600 for t in elected)
        assert any(600 < t < 900 for t in elected)
    assert json.loads((tmp_path / "facts.json").read_text())["runs"] == 3


@pytest.mark.slow
def test_fairness(tmp_path):
    script(
        "paper_fairness_gpu", "--digits", "--out", str(tmp_path), "--iterations", "40", "--every", "20", "--alphas", "1"
    )
    table = pd.read_csv(tmp_path / "fairness.csv")
    assert set(table["variant"]) >= {"visit", "node", "walk"}
    assert len(pd.read_csv(tmp_path / "rates.csv")) == 2 * 4 * 3


@pytest.mark.slow
def test_resume(tmp_path):
    words = ("--digits", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work"), "--iterations", "3000")
    said = json.loads(script("resume_gpu", *words).splitlines()[-1])
    assert said["same"]
    assert said["was_interrupted"]


@pytest.mark.slow
def test_adapters(tmp_path, data, models):  # noqa: F811
    words = ("--model", models["llama"], "--data", data, "--out", str(tmp_path), "--time", "4", "--every", "2")
    script(
        "paper_adapters_gpu", *words, "--gigabits", "1e-05,10", "--rank", "2", "--samples", "20", "--losses", "9,0.1"
    )
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["form"] == "SharedBaseModel"
    assert facts["bytes_of_a_model"] == 4 * facts["trained"] < facts["parameters"]
    slow, fast = (pd.read_csv(tmp_path / f"fig8-adapters-{rate}.csv") for rate in ("1e-05", "10"))
    gossip = [table[table["algorithm"].str.startswith("async_gossip")]["iteration"].max() for table in (slow, fast)]
    assert gossip[0] < gossip[1]
    assert set(pd.read_csv(tmp_path / "to-loss.csv")["loss"]) == {9.0}
