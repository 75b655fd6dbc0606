"""Figure 9: aggregators that die. What it does to the loss, against the same runs without failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from claims.losses import PERCENT
from claims.runs import LOOKED_AT, history_in, in_order, measured, runs_of, short, value_until
from claims.spread import NONE, NOT_RUN, NOTHING, Cell, Spread, between, line, number, percent, scaled, spread, table

AFTER = 50.0  # seconds after a failure
CONVERGES = "Training converges through two failures of the aggregator"
HARDLY_SLOWS = "The loss of the aggregator hardly slows convergence"
GOSSIP_SAME = "Gossip losing the same nodes does nearly the same"
CONFIDENCE = 0.95
WITH, WITHOUT = "with failures", "without"


def section(folder: Path) -> list[str]:
    events = events_in(folder / "fig9")
    kills = sorted({float(time) for time in events[events["event"] == "kill"]["time"]})
    histories = {
        name: history_in(folder / place, "fig9.csv") for name, place in ((WITH, "fig9"), (WITHOUT, "fig9-without"))
    }
    if histories[WITH].empty:
        return [line(name, NOT_RUN) for name in (CONVERGES, HARDLY_SLOWS, GOSSIP_SAME)] + [""]
    labels = in_order(histories[WITH]["algorithm"])
    return [
        ends(histories, labels),
        *elections(events, labels),
        "",
        around(histories, labels, kills),
        rises(histories, labels, kills),
        differences(histories, labels),
    ]


def events_in(folder: Path) -> pd.DataFrame:
    file = folder / "events.csv"
    columns = ["algorithm", "repetition", "time", "event"]
    return pd.read_csv(file) if file.is_file() else pd.DataFrame(columns=columns)


def ends(histories: dict[str, pd.DataFrame], labels: Sequence[str]) -> str:
    head = ["final loss", "accuracy, %", "loss of the mean", "accuracy of the mean, %", "trainings"]
    rows: dict[str, list[Cell]] = {}
    for name, history in histories.items():
        for label in labels:
            runs = runs_of(history, label)
            rows[f"{short(label)}, {name}"] = [
                measured(runs, "train_loss"),
                scaled(measured(runs, "test_accuracy"), PERCENT),
                measured(runs, "mean_train_loss"),
                scaled(measured(runs, "mean_test_accuracy"), PERCENT),
                measured(runs, "iteration"),
            ]
    return table(f"{CONVERGES}; {GOSSIP_SAME}", "at the end", head, rows, (3, 1, 3, 1, 0))


def elections(events: pd.DataFrame, labels: Sequence[str]) -> list[str]:
    """Seconds from each failure to the election after it, and what else the failures brought about."""
    found = []
    for label in labels:
        mine = events[events["algorithm"] == label]
        seconds, kills = [], 0
        for _, run in mine.groupby("repetition"):
            dead = sorted(run[run["event"] == "kill"]["time"])
            kills += len(dead)
            for begins, ends in zip(dead, [*dead[1:], math.inf], strict=True):
                elected = run[(run["event"] == "elected") & (run["time"] > begins) & (run["time"] <= ends)]["time"]
                seconds += [float(elected.min()) - begins] if len(elected) else []
        others = mine[~mine["event"].isin(["kill", "elected"])]["event"].value_counts()
        more = "".join(f", {name} {count} times" for name, count in others.items())
        took = f", {between(seconds, 2)} s after" if seconds else ""
        words = f"{len(seconds)} elections after {kills} failures in {mine['repetition'].nunique()} runs{took}{more}"
        found.append(line(CONVERGES, f"{short(label)}: {words}"))
    return found


def around(histories: dict[str, pd.DataFrame], labels: Sequence[str], kills: Sequence[float]) -> str:
    """The loss just before each failure, and some time after."""
    if not kills:
        return line(HARDLY_SLOWS, f"when the failures were is not known: events.csv {NOT_RUN}\n")
    times = [time for kill in kills for time in (kill, kill + AFTER)]
    rows: dict[str, list[Cell]] = {
        f"{short(label)}, {name}": [at(runs_of(history, label), time) for time in times]
        for label in labels
        for name, history in histories.items()
    }
    head = [f"at {time:g} s" for time in times]
    return table(HARDLY_SLOWS, "training loss at the last evaluation until then", head, rows)


def at(runs: Sequence[pd.DataFrame], time: float) -> Spread:
    return spread(float(run[run["time"] <= time]["train_loss"].iloc[-1]) for run in runs) if runs else NOTHING


def rises(histories: dict[str, pd.DataFrame], labels: Sequence[str], kills: Sequence[float]) -> str:
    """The largest step upwards from one evaluation to the next, in any run; what falls everywhere has a minus."""
    rows: dict[str, list[Cell]] = {}
    for label in labels:
        runs = {name: runs_of(history, label) for name, history in histories.items()}
        rows[short(label)] = [
            largest_rise(runs[WITH], kills, True),
            largest_rise(runs[WITH], kills, False),
            largest_rise(runs[WITHOUT], kills, True),
            largest_rise(runs[WITHOUT], kills, False),
        ]
    head = [f"{when}, {name}" for name in (WITH, WITHOUT) for when in (f"in {AFTER:g} s after a failure", "elsewhere")]
    return table(HARDLY_SLOWS, "largest rise of the training loss between two evaluations of a run", head, rows)


def largest_rise(runs: Sequence[pd.DataFrame], kills: Sequence[float], after: bool) -> str:
    """Of the steps that begin within some time after a failure, or of all others. The start is left out: a BatchNorm's
    running statistics mean nothing there."""
    found: list[tuple[float, float, int]] = []
    for run in (run[run["iteration"] > 0] for run in runs):
        steps, begins = np.diff(run["train_loss"]), run["time"].to_numpy()[:-1]
        near = np.any([(begins >= kill) & (begins < kill + AFTER) for kill in kills], axis=0) if kills else begins < 0
        chosen = (near == after) & np.isfinite(steps)
        found += [
            (float(step), float(begin), int(run["repetition"].iloc[0]))
            for step, begin in zip(steps[chosen], begins[chosen], strict=True)
        ]
    if not found:
        return NONE if runs else NOT_RUN
    step, begin, repetition = max(found)
    return f"{'+' if step > 0 else ''}{number(step, 3)} (from {begin:g} s, repetition {repetition})"


def differences(histories: dict[str, pd.DataFrame], labels: Sequence[str]) -> str:
    """What failures change at the end, in pairs: runs of the same repetition begin alike and draw alike."""
    columns = {
        "train_loss": (1.0, 3),
        "test_accuracy": (PERCENT, 1),
        "mean_train_loss": (1.0, 3),
        "mean_test_accuracy": (PERCENT, 1),
    }
    rows: dict[str, list[Cell]] = {}
    for label in labels:
        pairs = ends_in_pairs(histories, label)
        rows[short(label)] = [
            interval(factor * (pairs[column, WITH] - pairs[column, WITHOUT]), digits) if len(pairs) else NOT_RUN
            for column, (factor, digits) in columns.items()
        ]
    head = ["loss", "accuracy, points", "loss of the mean", "accuracy of the mean, points"]
    what = (
        f"{WITH} minus {WITHOUT} at the end, repetition by repetition: mean and its {percent(CONFIDENCE)} interval (t)"
    )
    return table(HARDLY_SLOWS, what, head, rows)


def ends_in_pairs(histories: dict[str, pd.DataFrame], label: str) -> pd.DataFrame:
    """The ends of the repetitions that both have, side by side."""
    last = {name: ends_of(runs_of(history, label)) for name, history in histories.items()}
    return pd.concat(last, axis=1, join="inner").swaplevel(axis=1)


def ends_of(runs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """A row for each repetition: its losses and accuracies at the end."""
    rows = {int(run["repetition"].iloc[0]): {name: value_until(run, name) for name in LOOKED_AT} for run in runs}
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(LOOKED_AT))


def interval(values: pd.Series[float], digits: int) -> str:
    """Mean and where the true one lies, by Student's t."""
    array = values.to_numpy(float)
    if not np.isfinite(array).all():
        return NONE
    count = f"n = {len(array)}"
    if len(array) < 2:
        return f"{number(float(array.mean()), digits)} ({count})"
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(array) - 1) * array.std(ddof=1) / math.sqrt(len(array)))
    mean = float(array.mean())
    return f"{number(mean, digits)} ({number(mean - half, digits)} to {number(mean + half, digits)}, {count})"
