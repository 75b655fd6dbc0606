"""Who won: a pure function of a study's history.

On each axis (iterations, time, bits) the winner is who first reaches a common target: the lowest training loss that
every run reached, so that the comparison asks the same of all. Between two evaluations a run falls in a straight line.
An algorithm that hardly learns, or that loses again what it had learned, would make the target worthless; it is left
out of the choice, and said not to reach it.

How low a run ends is the mean over its last evaluations, since one alone may be a lucky or an unlucky moment. How sure
it is who is better is decided in one place, `decide`, from repetitions and, where there are several, splits of the
data; and since a person reads several such verdicts at once, they are corrected together (Holm).
"""

from __future__ import annotations

import functools
import json
import math
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, version
from math import exp, isfinite, sqrt
from typing import TYPE_CHECKING, Any, TypeAlias

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
WINDOW = 5  # evaluations at the end of a run whose mean is its end …
OF_A_RUN = 4  # … but no more than one of so many that it has: a fifth of few would look back too far


@dataclass(frozen=True)
class Decision:
    """Whether repetitions tell two algorithms apart: how likely the gap between them is real, and what it rests on."""

    chance: float  # that the first is really better
    gap: float  # between their means; of what is compared, so of logarithms where these are
    spreads: tuple[float, ...]  # variances of one run of each, or of the difference on one split of the data
    runs: int  # repetitions of each, or splits
    known: float = KNOWN  # degrees of freedom of what was known of spreads before
    random: bool = True  # whether anything in them is

    def needed(self, clear: float = CLEAR) -> int | None:
        """How many repetitions, or splits, would most likely make a gap of this size clear; None: too many, or none."""
        if not (self.random and isfinite(self.gap) and self.gap > 0):
            return None
        for count in range(self.runs + 1, MOST + 1):
            error, freedom = uncertainty(self.spreads, [count] * len(self.spreads), self.known)
            if self.gap >= error * (float(special.stdtrit(freedom, clear)) + float(special.stdtrit(freedom, POWER))):
                return count
        return None


@dataclass(frozen=True)
class Known:
    """What is known of the spread of one run before its repetitions are looked at."""

    spread: float  # σ; of costs and losses relative
    freedom: float = KNOWN  # degrees of freedom that it counts for


def known_from(groups: Iterable[Sequence[float]], measure: str = "loss") -> Known:
    """What many algorithms, each repeated a few times, say together of the spread of one run (Smyth 2004, section 6.2).

    Where all spread alike it counts for much, where each has its own for little.

    Args:
        groups: Values of each by repetition.
        measure: As for `decide`.
    """
    logs = [compared(measure, values) for values in groups if len(values) > 1]
    spreads = [(float(x.var(ddof=1)), len(x) - 1) for x in logs if x.std() > 0]
    if len(spreads) < 3:
        return Known(SPREADS.get(measure, COSTS))
    half = np.array([freedom / 2 for _, freedom in spreads])
    each = np.log([variance for variance, _ in spreads]) - special.digamma(half) + np.log(half)
    more = float(each.var(ddof=1) - special.polygamma(1, half).mean())  # than chance alone makes them differ
    freedom = MUCH if more <= special.polygamma(1, MUCH / 2) else 2 * _inverse_trigamma(more)
    return Known(exp(0.5 * float(each.mean() + special.digamma(freedom / 2) - np.log(freedom / 2))), freedom)


MUCH = 100.0  # degrees of freedom: more need not be told apart


def _inverse_trigamma(value: float) -> float:
    """The x whose trigamma function has this value, by Newton's steps on its reciprocal."""
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, x))
        x += step
        if abs(step) < 1e-10 * x:
            break
    return x


def compared(measure: str, values: Sequence[float]) -> np.ndarray:
    """Values in the form in which they are compared: logarithms of costs and losses above 0, less being better."""
    x = np.array(values, dtype=float)
    return -x if measure == "accuracy" else np.log(x) if (x > 0).all() else x


def decide(
    measure: str,
    best: Sequence[float],
    other: Sequence[float],
    splits: Sequence[object] | None = None,
    known: Known | None = None,
) -> Decision | None:
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

    Repetitions on one split of the data say nothing of others. Where there are several splits, what counts is how
    the difference of the two changes from split to split: both are averaged over the repetitions of each, and the
    differences of these means decide, so that repetitions of one split are not taken for news of another.

    Args:
        measure: `accuracy`, which should be large, `loss`, or an axis of costs.
        best: Values of the one with the better mean, by repetition.
        other: Those of another.
        splits: Which split of the data each repetition had, the same for both; all the same one if left out.
        known: Of the spread of one run; what other studies have shown, if left out.
    """
    if min(len(best), len(other)) < 2:
        return None
    known = known or Known(SPREADS.get(measure, COSTS))
    both = compared(measure, [*best, *other])
    x, y = both[: len(best)], both[len(best) :]
    if measure != "accuracy" and min(*best, *other) <= 0:  # a loss may be negative
        known = replace(known, spread=known.spread * max(float(np.abs(both).mean()), 1e-300))
    if splits is not None and len(set(splits)) > 1:
        return by_split(x, y, splits, known)
    gap = float(y.mean() - x.mean())
    if x.std() == 0 and y.std() == 0:  # nothing in them is random
        return Decision(1.0 if gap > 0 else 0.5, gap, (), max(len(x), len(y)), random=False)
    spreads = tuple(moderated(values, known) for values in (x, y))
    error, freedom = uncertainty(spreads, [len(x), len(y)], known.freedom)
    return Decision(float(special.stdtr(freedom, gap / error)), gap, spreads, max(len(x), len(y)), known.freedom)


def by_split(x: np.ndarray, y: np.ndarray, splits: Sequence[object], known: Known) -> Decision:
    """Whether the first is less, from its difference to the second on each of several splits of the data."""
    places = [np.flatnonzero([split == one for split in splits]) for one in dict.fromkeys(splits)]
    differences = np.array([float(y[place].mean() - x[place].mean()) for place in places])
    gap = float(differences.mean())
    if x.std() == 0 and y.std() == 0:
        return Decision(1.0 if gap > 0 else 0.5, gap, (), len(places), random=False)
    of_differences = replace(known, spread=known.spread * sqrt(2 * len(places) / len(x)))
    spreads = (moderated(differences, of_differences),)
    error, freedom = uncertainty(spreads, [len(places)], known.freedom)
    return Decision(float(special.stdtr(freedom, gap / error)), gap, spreads, len(places), known.freedom)


def holm(chances: Sequence[float]) -> list[float]:
    """The chances of verdicts that are read together, each less by what looking at all of them adds to luck.

    Holm's correction of the values p = 2 (1 − chance): the least times their number, the next times one less, and so
    on, none less than the one before. With it all that are called clear are right together 95 times of 100.
    """
    order = sorted(range(len(chances)), key=lambda k: -chances[k])
    found, worst = [0.0] * len(chances), 0.0
    for rank, k in enumerate(order):
        worst = max(worst, min(1.0, (len(chances) - rank) * 2 * (1 - chances[k])))
        found[k] = 1 - worst / 2
    return found


def moderated(values: np.ndarray, known: Known) -> float:
    """The variance of one run: that of these, with what was known before."""
    squares = float(((values - values.mean()) ** 2).sum())
    return (known.freedom * known.spread**2 + squares) / (known.freedom + len(values) - 1)


def uncertainty(variances: Sequence[float], counts: Sequence[int], known: float = KNOWN) -> tuple[float, float]:
    """The standard error of the difference of two means, and its degrees of freedom (Welch and Satterthwaite)."""
    shares = [variance / count for variance, count in zip(variances, counts, strict=True)]
    freedom = sum(share**2 / (known + count - 1) for share, count in zip(shares, counts, strict=True))
    return sqrt(sum(shares)), sum(shares) ** 2 / freedom


AXES = ("iteration", "time", "bits")
LEARNS = 0.1  # of the largest fall in loss that any run achieved; less is "hardly learns"


def summarize(
    history: pd.DataFrame,
    spec: StudySpec | None = None,
    device: str | None = None,
    described: Mapping[str, Described] | None = None,
    target: float | None = None,
    splits: Mapping[int, object] | None = None,
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
        splits: which split of the data each repetition had; all the same one if left out.
    """
    runs = {label: _runs(part) for label, part in history.groupby("algorithm", sort=False)}
    target = _target(runs.values()) if target is None else target
    falls = functools.partial(last_fall, spec=spec)
    says = {label: vars(one) for label, one in spec.described.items()} if spec is not None else {}
    algorithms = {
        str(label): {**_algorithm(of, target, falls), **says.get(str(label), {})} for label, of in runs.items()
    }
    given = known(map(str, runs), described or (spec.described if spec is not None else {}))
    candidates = {str(label): of for label, of in runs.items() if not given[str(label)].is_reference}
    winners = _winners(
        {
            measure: {label: _measured(of, measure, target, falls) for label, of in candidates.items()}
            for measure in ("loss", "accuracy", *AXES)
        },
        [splits[repetition] for repetition in sorted(splits)] if splits is not None else None,
    )
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
    window = max((min(window_of(len(run)), len(run) - falls(run)) for of in runs.values() for run in of), default=1)
    summary |= {"window": window} if window > 1 else {}
    summary |= {"splits": len(set(splits.values()))} if splits is not None else {}
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


def window_of(evaluations: int) -> int:
    """How many of a run's evaluations are its end: the last five, fewer where it has not many."""
    return max(1, min(WINDOW, evaluations // OF_A_RUN))


def at_the_end(run: pd.DataFrame, column: str, since: int = 0) -> float:
    """The mean of a column over a run's last evaluations; the last one's where that is no number.

    Args:
        run: Its evaluations, in order.
        column: Such as `train_loss`.
        since: How many at the beginning are not looked at, such as those before the learning rate fell.
    """
    values = run[column].to_numpy(float)
    last = values[max(since, len(values) - window_of(len(values))) :]
    return float(last[np.isfinite(last)].mean()) if math.isfinite(last[-1]) else float(last[-1])


Falls: TypeAlias = Callable[["pd.DataFrame"], int]  # a run -> its evaluations until the learning rate last fell


def last_fall(run: pd.DataFrame, spec: StudySpec | None) -> int:
    """How many evaluations a run has until the learning rate falls for the last time: what it was then is no end."""
    if spec is None or not spec.schedule.decay_at:
        return 0
    limits = {"iteration": spec.stop.iterations, "time": spec.stop.time, "bits": spec.stop.bits}
    ends = {axis: float(limit) for axis, limit in limits.items() if limit is not None}
    way = np.max([run[axis].to_numpy(float) / end for axis, end in ends.items()], axis=0, initial=0.0)
    fallen = [at for at in spec.schedule.decay_at if at < way[-1]]
    return int(np.searchsorted(way, max(fallen), side="right")) if fallen else 0


def _algorithm(runs: list[pd.DataFrame], target: float, falls: Falls) -> dict[str, Any]:
    def ends(column: str) -> dict[str, Any] | None:
        return _spread([at_the_end(run, column, falls(run)) for run in runs])

    return {
        "repetitions": len(runs),
        "final_loss": ends("train_loss"),
        "best_loss": _spread([_best(run) for run in runs]),
        "final_accuracy": ends("test_accuracy"),
        "final_consensus": ends("consensus"),
        **{f"final_{axis}": _spread([float(run[axis].iloc[-1]) for run in runs]) for axis in AXES},
        **{f"final_{name}": ends(name) for name in _further(runs) if name not in ADDS_UP},
        **{f"final_{name}": _spread([float(run[name].iloc[-1]) for run in runs]) for name in ADDS_UP & set(runs[0])},
        "to_target": {axis: _spread([first_below(run, axis, target) for run in runs]) for axis in AXES},
    }


ADDS_UP = {"epsilon"}  # what a run spends: its end is what it has spent then


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


def _winners(
    measures: Mapping[str, Mapping[str, list[float]]], splits: Sequence[object] | None
) -> dict[str, dict[str, Any] | None]:
    """The best on each measure and how surely it is, all of them read together.

    Args:
        measures: Values of every algorithm by repetition, for each of loss, accuracy and the axes of costs.
        splits: Of the data, by repetition.
    """
    found = {measure: _winner(measure, values, splits) for measure, values in measures.items()}
    decided = {measure: one for measure, one in found.items() if one is not None and one.decision is not None}
    chances = [one.decision.chance for one in decided.values() if one.decision is not None]
    together = dict(zip(decided, holm(chances), strict=True))
    return {
        measure: None if one is None else one.as_entry(together.get(measure), len(chances))
        for measure, one in found.items()
    }


@dataclass(frozen=True)
class _Winner:
    """The best mean, who comes next, and what tells them apart."""

    algorithm: str
    value: float
    next: str | None = None
    decision: Decision | None = None

    def as_entry(self, together: float | None, read: int) -> dict[str, Any]:
        """As `summary.json` has it.

        Args:
            together: The chance that it is better, corrected for the verdicts that are read with it.
            read: How many these are.
        """
        said: dict[str, Any] = {"algorithm": self.algorithm, "value": self.value, "next": self.next, "clear": None}
        if self.decision is None or together is None:
            return said
        clear = together >= CLEAR
        needed = None if clear else self.decision.needed(1 - (1 - CLEAR) / read)
        return said | {
            "clear": clear,
            "chance": together,
            "chance_alone": self.decision.chance,
            "repetitions_needed": needed,
        }


def _winner(measure: str, values: Mapping[str, list[float]], splits: Sequence[object] | None) -> _Winner | None:
    """The best mean and who comes next.

    Args:
        measure: `accuracy`, of which more is better, `loss`, or an axis of costs.
        values: Of every algorithm, by repetition; one that has no number in any of them takes no part.
        splits: Of the data, by repetition.
    """
    sign = -1.0 if measure == "accuracy" else 1.0
    means = {label: float(np.mean(of)) for label, of in values.items() if len(of) and np.isfinite(of).all()}
    order = sorted(means, key=lambda label: sign * means[label])
    if not order:
        return None
    if len(order) == 1:
        return _Winner(order[0], means[order[0]])
    best, other = (values[label] for label in order[:2])
    known_splits = splits if splits is not None and len(splits) == len(best) == len(other) else None
    return _Winner(order[0], means[order[0]], order[1], decide(measure, best, other, known_splits))


def _measured(runs: list[pd.DataFrame], measure: str, target: float, falls: Falls) -> list[float]:
    """The value of every run that is compared on an axis."""
    if measure in AXES:
        return [first_below(run, measure, target) for run in runs]
    column = "train_loss" if measure == "loss" else "test_accuracy"
    return [at_the_end(run, column, falls(run)) for run in runs]


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


@functools.cache  # reading it takes longer than a small study's summary
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
