"""The scripts of the GPU runs, in small and on a CPU: that they come to their files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(name: str, *words: str) -> str:
    """Runs one of them, as a person would."""
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *words, "--device", "cpu"]
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
