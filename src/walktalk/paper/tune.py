"""A learning rate of its own for each algorithm: successive halving over a grid, on shortened runs of the same study.

A comparison at one fixed rate favours whoever that rate suits. All candidates of all algorithms run as one study, so
they share their waves. The schedule goes by progress, so a shortened run has all of it. The trial runs have the study's
graph and data, and the first repetitions' randomness. Where the best is at the edge of what was tried, the grid goes on
there: a better one may lie beyond.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from walktalk.errors import StudyError
from walktalk.records import write_text
from walktalk.studies.building import Progress
from walktalk.studies.driving import run_study
from walktalk.studies.spec import StudySpec, make_spec, spec_mapping

STEP = 2.0  # between neighbours of the grid
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the study's own rate: what is tried at first
FARTHEST = 64.0  # no candidate is further from the study's own rate than this factor
ROUNDS = (1 / 8, 1 / 4)  # shares of a run; after each, the better half of an algorithm's candidates stays
REPETITIONS = 2

Rates = dict[str, list[float]]  # algorithm -> candidates, best first
Losses = dict[str, dict[float, float]]  # algorithm -> candidate -> its last training loss
Report = Callable[[Progress], None]


def tuned(spec: StudySpec, record: Path, *, device: str = "auto", progress: Report | None = None) -> StudySpec:
    """The study with each algorithm's best rate; how it was found is kept in a file, and taken from there again."""
    best = recorded(spec, record)
    if best is None:
        best, rounds = found(spec, device, progress)
        record.parent.mkdir(parents=True, exist_ok=True)
        if record.exists():  # of other settings, for which it took as long to find them
            os.replace(record, next(name for name in _aside(record) if not name.exists()))
        write_text(record, json.dumps({"best": best, "rounds": rounds, "spec": spec_mapping(spec)}, indent=1) + "\n")
    return with_rates(spec, best)


def _aside(record: Path) -> Iterator[Path]:
    """Names for a record that is to be kept beside: cycle.rates.1.json and so on."""
    return (record.with_suffix(f".{number}{record.suffix}") for number in count(1))


def recorded(spec: StudySpec, record: Path) -> dict[str, float] | None:
    """The rates in a record, if they were found for this very study; those of another one would mean nothing here."""
    if not record.is_file():
        return None
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
        best, of = content["best"], content.get("spec")
        if of != json.loads(json.dumps(spec_mapping(spec))):
            return None
        return {algorithm.title: float(best[algorithm.title]) for algorithm in spec.algorithms}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StudyError(f"{record} is damaged; delete it, and the rates are looked for again") from error


def found(
    spec: StudySpec, device: str = "auto", progress: Report | None = None
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Each algorithm's best rate, and the losses of every round."""
    tried: Rates = {a.title: [spec.optimizer.lr * factor for factor in FACTORS] for a in spec.algorithms}
    rates, rounds = tried, []
    for share in ROUNDS:
        losses = trial(spec, rates, share, device, progress)
        while more := beyond(losses, tried, spec.optimizer.lr):
            for name, of in trial(spec, more, share, device, progress).items():
                losses[name] |= of
                tried = {**tried, name: [*tried[name], *of]}
        rounds.append(
            {"share": share, "losses": {name: {f"{lr:g}": x for lr, x in of.items()} for name, of in losses.items()}}
        )
        rates = {name: better_half(of) for name, of in losses.items()}
    return {name: candidates[0] for name, candidates in rates.items()}, rounds


def beyond(losses: Losses, tried: Rates, middle: float) -> Rates:
    """The next candidate of every algorithm whose best one is at the edge of what was tried."""
    more: Rates = {}
    for name, of in losses.items():
        best = better_half(of)[0]
        if best == max(tried[name]) and best * STEP <= middle * FARTHEST:
            more[name] = [best * STEP]
        elif best == min(tried[name]) and best / STEP >= middle / FARTHEST:
            more[name] = [best / STEP]
    return more


def rates_in_words(spec: StudySpec) -> str:
    """Who got which rate, and whose is still at the edge of what is tried."""
    rates, middle = {a.title: a.lr for a in spec.algorithms if a.lr is not None}, spec.optimizer.lr
    far = [name for name, lr in rates.items() if lr in (middle * FARTHEST, middle / FARTHEST)]
    edge = f"; {', '.join(far)}: at the edge of what is tried, so a better one may lie beyond" if far else ""
    return ", ".join(f"{name} {lr:g}" for name, lr in rates.items()) + edge


def trial(spec: StudySpec, rates: Rates, share: float, device: str, progress: Report | None) -> Losses:
    """The last training loss of every candidate, mean over repetitions."""
    content = _shortened(spec, share)
    names: dict[str, tuple[str, float]] = {}
    entries = []
    for entry, algorithm in zip(content["algorithms"], spec.algorithms, strict=True):
        for lr in rates.get(algorithm.title, ()):
            label = f"{algorithm.title} at {lr:g}"
            names[label] = algorithm.title, lr
            entries.append({**entry, "lr": lr, "label": label})
    history = run_study(make_spec({**content, "algorithms": entries}), device=device, progress=progress).history
    ends = history.sort_values("iteration").groupby(["algorithm", "repetition"]).tail(1)  # `last` would skip a NaN
    last = ends.set_index("algorithm")["train_loss"]
    losses: Losses = {name: {} for name in rates}
    for label, (name, lr) in names.items():
        losses[name][lr] = float(last.loc[[label]].mean(skipna=False))
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
        **content,
        "stop": stop,
        "evaluate": {**end, **samples},
        "faults": [],
        "repetitions": min(REPETITIONS, spec.repetitions),
    }
