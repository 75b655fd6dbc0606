"""The figures of the GPU runs and of theory, drawn from tables: whatever is there, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from walktalk.records import COLUMNS, read_history

ROOT = Path(__file__).resolve().parents[3]
LABELS = ("multi_walk-1", "multi_walk-4", "async_gossip-pairwise")
SPEC = {
    "task": {"name": "cifar10", "alpha": 1.0},
    "network": {"nodes": 20},
    "stop": {"iterations": 40},
    "schedule": {"decay_at": [0.75], "factor": 0.1},
}


def script(name: str, *words: str) -> list[str]:
    command = [sys.executable, str(ROOT / "reproduction" / f"{name}.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def runs(labels: tuple[str, ...] = LABELS, repetitions: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        {
            "algorithm": label,
            "repetition": r,
            "iteration": k,
            "time": k * (1 + r) / 10,
            "bits": 8 * k,
            "train_loss": np.nan if (k, r) == (20, 1) else 2 - k / 40 + 0.1 * rng.random(),
            "test_accuracy": k / 80,
        }
        for label in labels
        for r in range(repetitions)
        for k in (0, 10, 20, 30, 40)
    ]
    return pd.DataFrame(rows).reindex(columns=list(COLUMNS), fill_value=0.0)


def write(folder: Path, name: str, table: pd.DataFrame) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / name, index=False)
    (folder / "facts.json").write_text(json.dumps({"spec": SPEC}))


@pytest.mark.slow
def test_what_is_there_is_drawn(tmp_path):
    assert all("not there" in line for line in script("paper_figures", str(tmp_path)))
    for alpha in ("0.1", "1", "10"):
        for topology in ("cycle", "erdos_renyi", *(("complete",) if alpha == "1" else ())):
            write(tmp_path / f"alpha-{alpha}", f"{topology}.csv", runs())
    drawn = {Path(line).name for line in script("paper_figures", str(tmp_path)) if "not there" not in line}
    assert drawn == {f"fig{k}.{kind}" for k in (4, 5, 6, 7) for kind in ("png", "pdf")}


@pytest.mark.slow
def test_failures_threshold_and_variants(tmp_path):
    write(tmp_path / "fig9", "fig9.csv", runs())
    write(tmp_path / "fig9-without", "fig9.csv", runs())
    pd.DataFrame({"event": ["kill", "elected"], "time": [1.0, 1.5]}).to_csv(tmp_path / "fig9" / "events.csv")
    write(tmp_path / "alpha-1", "complete.csv", runs())
    write(tmp_path / "threshold", "complete.csv", runs(("multi_walk-6", "multi_walk-10")))
    variants = [runs().assign(alpha=1.0, topology="cycle", variant=name) for name in ("visit", "node", "walk")]
    write(tmp_path / "fairness", "fairness.csv", pd.concat(variants))
    drawn = {
        str(Path(line).relative_to(tmp_path))
        for line in script("paper_figures", str(tmp_path))
        if "/" in line and "not there" not in line
    }
    assert {"fig9/fig9.png", "threshold.png", "fairness/fairness.png", "fig4.png"} <= drawn


def test_the_ends_of_runs():
    sys.path.insert(0, str(ROOT / "reproduction"))
    from paper_ends import bars_of, threshold_ends

    def with_settings(name: str, labels: tuple[str, ...]) -> pd.DataFrame:
        return runs(labels).assign(alpha=1.0, topology="cycle", variant=name)

    table = pd.concat(
        [
            with_settings("visit", LABELS),
            with_settings("node", LABELS),
            with_settings("walk", LABELS[:2]),
            with_settings("tuned", LABELS[:1]),
        ]
    )
    table.loc[(table["variant"] == "node") & (table["iteration"] == 40), "train_loss"] = np.nan
    bars = bars_of(table)
    assert set(bars["iteration"]) == {40}
    assert bars[(bars["variant"] == "node")]["train_loss"].isna().all()  # not the last number before it diverged
    repeated = {(a, v) for a, v in zip(*(bars[bars["repeated"]][k] for k in ("algorithm", "variant")), strict=True)}
    assert repeated == {("multi_walk-4", "own"), ("async_gossip-pairwise", "own"), ("async_gossip-pairwise", "walk")}
    ends = threshold_ends([runs(), runs(("multi_walk-4", "multi_walk-6"))])
    assert ends.groupby("algorithm").size().to_dict() == dict.fromkeys([*LABELS, "multi_walk-6"], 2)


@pytest.mark.slow
def test_theory_is_drawn_again_from_its_tables(tmp_path):
    for file in (ROOT / "results" / "2026-11-15-advisor-theory").glob("*.csv"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    script("theory", "--out", str(tmp_path), "--draw-only")
    assert {file.name for file in tmp_path.glob("*.png")} == {"bound.png", "phase.png", "scaling.png", "speedup.png"}
    assert not (tmp_path / "summary.json").exists()


@pytest.mark.parametrize("file", sorted((ROOT / "results").glob("*/history.csv")), ids=lambda file: file.parent.name)
def test_rows_of_a_shipped_history_stand_in_the_runs_own_order(file):
    for _, run in read_history(file).groupby(["algorithm", "repetition"]):
        assert run["time"].is_monotonic_increasing
        assert run["iteration"].is_monotonic_increasing
