"""What chaos leaves: one line a round for a spreadsheet, everything for a program, and a summary."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import Any

from walktalk.records import write_text
from walktalk.studies.chaos.storm import Storm
from walktalk.studies.chaos.verdict import Verdict

ROUNDS = ("rounds.csv", "rounds.json")
COLUMNS = (
    "seed",
    "algorithm",
    "held",
    "kills",
    "aggregators_killed",
    "gone",
    "blows",
    "aggregating",
    "iterations",
    "mixings",
    "walks",
    "copies",
    "counted",
    "twice",
    "half_kept",
    "loss",
    "undisturbed",
    "spread",
    "measurements",
    "ratio",
    "detection",
    "recovery",
    "replacement",
    "seconds",
    "failures",
)


def write_rounds(folder: Path, storm: Storm, verdicts: list[Verdict]) -> None:
    """`rounds.csv` and `rounds.json`, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    in_order = sorted(verdicts, key=lambda verdict: verdict.seed)
    writer.writerows(_row(verdict) for verdict in in_order)
    write_text(folder / ROUNDS[0], table.getvalue())
    rounds = [{**asdict(v), "passed": v.passed, "failures": v.failures()} for v in in_order]
    everything = {"storm": asdict(storm), "summary": summary(verdicts), "rounds": rounds}
    write_text(folder / ROUNDS[1], json.dumps(everything, indent=1) + "\n")


def summary(verdicts: list[Verdict]) -> dict[str, Any]:
    """How many held, and the numbers that are printed."""
    passed = sum(v.passed for v in verdicts)
    ratios = [v.loss.ratio for v in verdicts if math.isfinite(v.loss.ratio)]
    halves = [half for v in verdicts for half in v.halves]
    found: dict[str, Any] = {
        "name": "chaos",
        "value": passed,
        "baseline": len(verdicts),
        "ratio": passed / len(verdicts) if verdicts else None,
        "loss_ratio_mean": fmean(ratios) if ratios else None,
        "loss_ratio_worst": max(ratios, default=None),
        "halves": len(halves),
        "half_kept_mean": fmean(half.share for half in halves) if halves else None,
        "half_kept_worst": min((half.share for half in halves), default=None),
    }
    for name in ("detection", "recovery", "replacement"):
        values = [value for verdict in verdicts for value in getattr(verdict, name)]
        found[f"{name}_median"] = median(values) if values else None
        found[f"{name}_worst"] = max(values, default=None)
        found[f"{name}_count"] = len(values)
    return found


def _row(verdict: Verdict) -> dict[str, Any]:
    loss = verdict.loss
    given = {name: getattr(verdict, name, "") for name in COLUMNS}
    return given | {
        "held": verdict.passed,
        "kills": sum(line.startswith("kill") for line in verdict.blows),
        "gone": _words(verdict.gone),
        "blows": "; ".join(verdict.blows),
        "aggregating": _words(verdict.aggregating),
        "half_kept": _words(tuple(f"{half.share:.3f}" for half in verdict.halves)),
        "counted": f"{verdict.counted:.4f}",
        "loss": f"{loss.disturbed:.5f}",
        "undisturbed": f"{loss.undisturbed:.5f}",
        "spread": f"{loss.spread:.5f}",
        "measurements": loss.measurements,
        "ratio": f"{loss.ratio:.4f}",
        "detection": _words(verdict.detection),
        "recovery": _words(verdict.recovery),
        "replacement": _words(verdict.replacement),
        "seconds": f"{verdict.seconds:.1f}",
        "failures": "; ".join(verdict.failures()),
    }


def _words(values: tuple[Any, ...]) -> str:
    return " ".join(str(value) for value in values)
