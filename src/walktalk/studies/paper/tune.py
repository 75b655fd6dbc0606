"""A learning rate of its own for each algorithm: successive halving over a grid, on shortened runs of the same study.

A comparison at one fixed rate favours whoever that rate suits. All candidates of all algorithms run as one study, so
they share their waves. The schedule goes by progress, so a shortened run has all of it. The trial runs have the study's
graph and data, and the first repetitions' randomness.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from walktalk.records import write_text
from walktalk.studies.run import run_study
from walktalk.studies.runs import Progress
from walktalk.studies.spec import StudySpec
from walktalk.studies.spec_load import make_spec, spec_mapping

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the study's own rate
ROUNDS = (1 / 8, 1 / 4)  # shares of a run; after each, the better half of an algorithm's candidates stays
REPETITIONS = 2

Rates = dict[str, list[float]]  # algorithm -> candidates, best first


def tuned(
    spec: StudySpec, record: Path, *, device: str = "auto", progress: Callable[[Progress], None] | None = None
) -> StudySpec:
    """The study with each algorithm's best rate; how it was found is kept in a file, and taken from there again."""
    if record.is_file():
        best: dict[str, float] = json.loads(record.read_text(encoding="utf-8"))["best"]
        return with_rates(spec, best)
    rates: Rates = {a.title: [spec.optimizer.lr * factor for factor in FACTORS] for a in spec.algorithms}
    rounds = []
    for share in ROUNDS:
        losses = trial(spec, rates, share, device, progress)
        rounds.append(
            {"share": share, "losses": {name: {f"{lr:g}": x for lr, x in of.items()} for name, of in losses.items()}}
        )
        rates = {name: better_half(of) for name, of in losses.items()}
    best = {name: candidates[0] for name, candidates in rates.items()}
    record.parent.mkdir(parents=True, exist_ok=True)
    write_text(record, json.dumps({"best": best, "rounds": rounds}, indent=1) + "\n")
    return with_rates(spec, best)


def trial(
    spec: StudySpec, rates: Rates, share: float, device: str, progress: Callable[[Progress], None] | None
) -> dict[str, dict[float, float]]:
    """The last training loss of every candidate, mean over repetitions."""
    content = _shortened(spec, share)
    names: dict[str, tuple[str, float]] = {}
    entries = []
    for entry, algorithm in zip(content["algorithms"], spec.algorithms, strict=True):
        for lr in rates[algorithm.title]:
            label = f"{algorithm.title} at {lr:g}"
            names[label] = algorithm.title, lr
            entries.append({**entry, "lr": lr, "label": label})
    history = run_study(make_spec({**content, "algorithms": entries}), device=device, progress=progress).history
    last = history.sort_values("iteration").groupby(["algorithm", "repetition"])["train_loss"].last()
    losses: dict[str, dict[float, float]] = {name: {} for name in rates}
    for label, (name, lr) in names.items():
        losses[name][lr] = float(last[label].mean())
    return losses


def better_half(losses: dict[float, float]) -> list[float]:
    """Best first; one that has diverged is the worst there is."""
    order = sorted(losses, key=lambda lr: (losses[lr] if math.isfinite(losses[lr]) else math.inf, lr))
    return order[: -(-len(order) // 2)]


def with_rates(spec: StudySpec, best: dict[str, float]) -> StudySpec:
    """The same study with these rates; labels stay, so colours in figures do."""
    content = spec_mapping(spec)
    content["algorithms"] = [
        {**entry, "lr": best[algorithm.title], "label": algorithm.title}
        for entry, algorithm in zip(content["algorithms"], spec.algorithms, strict=True)
    ]
    return make_spec(content)


def _shortened(spec: StudySpec, share: float) -> dict[str, Any]:
    content = spec_mapping(spec)
    stop = {name: value * share for name, value in content["stop"].items() if name in ("time", "bits")}
    if spec.stop.iterations is not None:
        stop["iterations"] = max(1, round(share * spec.stop.iterations))
    end = {"every": stop["iterations"]} if "iterations" in stop else {"seconds": stop.get("time", 1.0)}
    samples = {"samples": spec.evaluate.samples} if spec.evaluate.samples is not None else {}
    return {
        **content, "stop": stop, "evaluate": {**end, **samples}, "faults": [],
        "repetitions": min(REPETITIONS, spec.repetitions),
    }  # fmt: skip
