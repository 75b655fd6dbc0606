"""Who won: a pure function of a study's history.

On each axis (iterations, time, bits) the winner is who first reaches a common target: the lowest training loss that
every run reached, so that the comparison asks the same of all. Between two evaluations a run falls in a straight line.
An algorithm that hardly learns, or that loses again what it had learned, would make the target worthless; it is left
out of the choice, and said not to reach it.
"""

from __future__ import annotations

import functools
import json
import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from walktalk.core.lazy import later
from walktalk.protocols import Described, known
from walktalk.records import RUN_COLUMNS
from walktalk.studies.spec import StudySpec, spec_mapping

if TYPE_CHECKING:
    import pandas as pd
    from scipy import special
else:
    special = later("scipy.special")  # nodes of a cluster decide nothing

CLEAR = 0.975  # the chance of being better at which it is clear: 95 % with both sides
POWER = 0.8  # how likely a number of repetitions is to be enough
KNOWN = 1.0  # degrees of freedom that what is known of spreads counts for
SPREADS = {"accuracy": 0.02, "loss": 0.2}  # of one run; of costs and losses relative
COSTS = 0.13  # the same of iterations, time and bits
COST_RULE = {"clear": CLEAR, "known": KNOWN, "spread": COSTS}
"""The numbers by which `decide` judges costs: a page decides by the same rule what nobody asked before."""
MOST = 1000  # repetitions: nobody makes more


@dataclass(frozen=True)
class Decision:
    """Whether repetitions tell two algorithms apart: the gap between them, and its uncertainty."""

    clear: bool  # whether the interval of 95 % leaves out zero
    chance: float  # that the first is really better
    needed: int | None  # repetitions of each after which it would be clear if the gap is as it seems; None: too many


def decide(measure: str, best: Sequence[float], other: Sequence[float]) -> Decision | None:
    """Whether the first is really better than the second; None with a single repetition of either.

    Costs and losses differ by factors, so their logarithms are compared; accuracies as they are. The interval is
    Student's for two means with spreads of their own (Welch's), with each spread taken together with what is known
    of spreads before (a "moderated" t, Smyth 2004): two or three runs that agree by luck prove little, and two or
    three that do not need not hide a gap of many times. What is known is from 149 algorithms in the 32 studies
    that were under results/ then with three repetitions or more: there this interval holds the difference in other
    repetitions 92 to 97 times of 100, where twice the standard error does 76 to 79 (two repetitions) and 86 or 87
    times (three).
    Repetitions share their seeds, but that makes runs of two algorithms hardly more alike (median correlation 0.1),
    and pairs by repetition leave half of the degrees of freedom: differences by pair decide less often
    (results/2026-11-18-advice-2/few_repetitions.py).

    Args:
        measure: `accuracy`, which should be large, `loss`, or an axis of costs.
        best: Values of the one with the better mean, by repetition.
        other: Those of another.
    """
    if min(len(best), len(other)) < 2:
        return None
    x, y = (np.array(values, dtype=float) for values in (best, other))
    known = SPREADS.get(measure, COSTS)
    if measure == "accuracy":
        gap = float(x.mean() - y.mean())
    elif (x > 0).all() and (y > 0).all():
        x, y = np.log(x), np.log(y)
        gap = float(y.mean() - x.mean())
    else:  # a loss may be negative
        known *= max(float(np.abs(np.concatenate([x, y])).mean()), 1e-300)
        gap = float(y.mean() - x.mean())
    if x.std() == 0 and y.std() == 0:  # nothing in them is random
        return Decision(gap > 0, 1.0 if gap > 0 else 0.5, None)
    spreads = [moderated(values, known) for values in (x, y)]
    error, freedom = uncertainty(spreads, [len(x), len(y)])
    chance = float(special.stdtr(freedom, gap / error))
    clear = chance >= CLEAR
    return Decision(clear, chance, None if clear else repetitions_needed(gap, spreads, max(len(x), len(y))))


def moderated(values: np.ndarray, known: float) -> float:
    """The variance of one run: that of these, with what was known before."""
    return float((KNOWN * known**2 + ((values - values.mean()) ** 2).sum()) / (KNOWN + len(values) - 1))


def uncertainty(variances: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """The standard error of the difference of two means, and its degrees of freedom (Welch and Satterthwaite)."""
    shares = [variance / count for variance, count in zip(variances, counts, strict=True)]
    freedom = sum(share**2 / (KNOWN + count - 1) for share, count in zip(shares, counts, strict=True))
    return sqrt(sum(shares)), sum(shares) ** 2 / freedom


def repetitions_needed(gap: float, variances: Sequence[float], there: int) -> int | None:
    """How many repetitions of each would most likely make a gap of this size clear; None if nobody makes so many."""
    if not (isfinite(gap) and gap > 0):
        return None
    for count in range(there + 1, MOST + 1):
        error, freedom = uncertainty(variances, [count, count])
        if gap >= error * (float(special.stdtrit(freedom, CLEAR)) + float(special.stdtrit(freedom, POWER))):
            return count
    return None


AXES = ("iteration", "time", "bits")
LEARNS = 0.1  # of the largest fall in loss that any run achieved; less is "hardly learns"


def summarize(
    history: pd.DataFrame,
    spec: StudySpec | None = None,
    device: str | None = None,
    described: Mapping[str, Described] | None = None,
    target: float | None = None,
) -> dict[str, Any]:
    """Mean ± σ over repetitions for every algorithm, and the winner on every axis.

    With a specification also what each algorithm is, the settings, and the versions and the machine they ran on. What
    is there to compare with, such as all data in one place, has its means, and wins nothing.

    Args:
        history: of a study, as `read_history` gives it.
        spec: the study's.
        device: what it was trained on.
        described: what is known of the algorithms, by label; as the specification or their labels say if left out.
        target: the training loss to reach; the lowest that every run reached, if left out.
    """
    runs = {label: _runs(part) for label, part in history.groupby("algorithm", sort=False)}
    target = _target(runs.values()) if target is None else target
    says = {label: vars(one) for label, one in spec.described.items()} if spec is not None else {}
    algorithms = {str(label): {**_algorithm(of, target), **says.get(str(label), {})} for label, of in runs.items()}
    given = known(map(str, runs), described or (spec.described if spec is not None else {}))
    candidates = {str(label): of for label, of in runs.items() if not given[str(label)].is_reference}
    winners = {
        measure: _winner(measure, {label: _measured(of, measure, target) for label, of in candidates.items()})
        for measure in ("loss", "accuracy", *AXES)
    }
    diverged = {str(label): numbers for label, of in runs.items() if (numbers := _diverged(of))}
    # A loss that never was a number is the fault of data, model or loss, not of a rate.
    never = [label for label in diverged if all(not run["train_loss"].map(math.isfinite).any() for run in runs[label])]
    summary: dict[str, Any] = {
        "target_loss": _number(target),
        "algorithms": algorithms,
        "winners": winners,
        "diverged": diverged,
    }
    summary |= {"never_finite": never} if never else {}
    if spec is None:
        return summary
    objective = spec.minimizes
    summary |= {} if objective.weights == "published" else {"objective": objective.words}
    return {"study": spec.name, **summary, "settings": spec_mapping(spec), **circumstances(device)}


def algorithms_of(summary: Mapping[str, Any]) -> dict[str, Described]:
    """What a summary says of the study's algorithms, by label; nothing of those in a summary from before it did."""
    names = [one.name for one in fields(Described)]
    entries = {label: entry for label, entry in summary["algorithms"].items() if set(names) <= set(entry)}
    return {label: Described(**{name: entry[name] for name in names}) for label, entry in entries.items()}


def summary_text(summary: dict[str, Any]) -> str:
    """The summary as it is written to `summary.json`."""
    return json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def circumstances(device: str | None = None) -> dict[str, Any]:
    """Versions and machine, for whoever wonders later why the numbers differ; nothing that tells whose it is."""
    packages = ("walktalk", "torch", "numpy", "scipy", "networkx", "pandas")
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in packages}},
        "machine": {
            "system": platform.system(),
            "processor": platform.machine(),
            "cpus": os.cpu_count() or 1,
            **({} if device is None else {"device": device}),
        },
    }


def _runs(part: pd.DataFrame) -> list[pd.DataFrame]:
    return [run.sort_values("iteration", kind="stable") for _, run in part.groupby("repetition", sort=True)]


def _diverged(runs: list[pd.DataFrame]) -> list[int]:
    """The repetitions whose loss is no number in the end."""
    return [int(run["repetition"].iloc[-1]) for run in runs if not math.isfinite(run["train_loss"].iloc[-1])]


def _target(algorithms: Iterable[list[pd.DataFrame]]) -> float:
    """The worst of the runs' best losses, among algorithms that learn."""
    lists = list(algorithms)
    first = max((_start(run) for runs in lists for run in runs), default=math.nan)
    lowest = min((_best(run) for runs in lists for run in runs), default=math.nan)
    least = LEARNS * (first - lowest)  # that it has to have learned, and to know in the end

    def learns(runs: list[pd.DataFrame]) -> bool:
        return first - max(_best(run) for run in runs) >= least and first - max(_last(run) for run in runs) >= least

    learned = [max(_best(run) for run in runs) for runs in lists if runs and learns(runs)]
    return max(learned, default=math.nan)


def _start(run: pd.DataFrame) -> float:
    finite = run["train_loss"][np.isfinite(run["train_loss"])]
    return float(finite.iloc[0]) if len(finite) else math.inf


def _best(run: pd.DataFrame) -> float:
    finite = run["train_loss"][np.isfinite(run["train_loss"])]
    return float(finite.min()) if len(finite) else math.inf


def _last(run: pd.DataFrame) -> float:
    last = float(run["train_loss"].iloc[-1])
    return last if math.isfinite(last) else math.inf


def _algorithm(runs: list[pd.DataFrame], target: float) -> dict[str, Any]:
    return {
        "repetitions": len(runs),
        "final_loss": _spread([float(run["train_loss"].iloc[-1]) for run in runs]),
        "best_loss": _spread([_best(run) for run in runs]),
        "final_accuracy": _spread([float(run["test_accuracy"].iloc[-1]) for run in runs]),
        "final_consensus": _spread([float(run["consensus"].iloc[-1]) for run in runs]),
        **{f"final_{axis}": _spread([float(run[axis].iloc[-1]) for run in runs]) for axis in AXES},
        **{f"final_{name}": _spread([float(run[name].iloc[-1]) for run in runs]) for name in _further(runs)},
        "to_target": {axis: _spread([first_below(run, axis, target) for run in runs]) for axis in AXES},
    }


def _further(runs: list[pd.DataFrame]) -> list[str]:
    """What was measured beside the usual: the test loss, and metrics that somebody asked for."""
    return [str(name) for name in runs[0].columns if name not in RUN_COLUMNS and not str(name).startswith("mean_")]


def first_below(run: pd.DataFrame, axis: str, target: float) -> float:
    """Where a run's loss first comes down to the target, by straight line between evaluations; nan if never."""
    loss, x = run["train_loss"].to_numpy(float), run[axis].to_numpy(float)
    below = np.flatnonzero(loss <= target)
    if len(below) == 0:
        return math.nan
    at = int(below[0])
    if at == 0 or not math.isfinite(loss[at - 1]) or loss[at - 1] == loss[at]:
        return float(x[at])
    share = (loss[at - 1] - target) / (loss[at - 1] - loss[at])
    return float(x[at - 1] + share * (x[at] - x[at - 1]))


def _spread(values: list[float]) -> dict[str, Any] | None:
    """Mean and sample σ; nothing at all if any run has no such number."""
    array = np.array(values, dtype=float)
    if len(array) == 0 or not np.isfinite(array).all():
        return None
    return {"mean": float(array.mean()), "std": float(array.std(ddof=1)) if len(array) > 1 else None}


def _winner(measure: str, values: Mapping[str, list[float]]) -> dict[str, Any] | None:
    """The best mean, who comes next, and whether and how surely it is better.

    Args:
        measure: `accuracy`, of which more is better, `loss`, or an axis of costs.
        values: Of every algorithm, by repetition; one that has no number in any of them takes no part.
    """
    sign = -1.0 if measure == "accuracy" else 1.0
    means = {label: float(np.mean(of)) for label, of in values.items() if len(of) and np.isfinite(of).all()}
    order = sorted(means, key=lambda label: sign * means[label])
    if not order:
        return None
    best = {"algorithm": order[0], "value": means[order[0]]}
    if len(order) == 1:
        return {**best, "next": None, "clear": None}
    found = decide(measure, values[order[0]], values[order[1]])
    if found is None:
        return {**best, "next": order[1], "clear": None}
    return {**best, "next": order[1], "clear": found.clear, "chance": found.chance, "repetitions_needed": found.needed}


def _measured(runs: list[pd.DataFrame], measure: str, target: float) -> list[float]:
    """The value of every run that is compared on an axis."""
    if measure in AXES:
        return [first_below(run, measure, target) for run in runs]
    return [float(run["train_loss" if measure == "loss" else "test_accuracy"].iloc[-1]) for run in runs]


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


@functools.cache  # reading it takes longer than a small study's summary
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
