"""What runs of `walktalk paper run FIGURE --variant …` say about open verdicts, from their histories alone.

As Markdown:

    python benchmarks/paper_verdicts.py results/2026-11-16-verdicts-h200

Of every study in the folder (FIGURE-VARIANT/PANEL with `spec.yaml` and `history.csv`): the loss at the end, just before
the learning rate falls, and by the mean of the walks' or nodes' models, each with the 95 % interval of its mean (Student's t
over the repetitions); and how far every number of walks is from gossip, with Welch's interval of the difference.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from claims.runs import FIRST_DECAY, in_order, runs_of, short
from claims.spread import number
from walktalk.paper.drawing.who_wins import family
from walktalk.records import read_history

CONFIDENCE = 0.95
MEASURES = {  # what is told of a run: column, share of its way
    "end": ("train_loss", 1.0),
    "end, mean of the models": ("mean_train_loss", 1.0),
    "before the rate falls": ("train_loss", FIRST_DECAY),
    "before, mean of the models": ("mean_train_loss", FIRST_DECAY),
    "accuracy at the end, %": ("test_accuracy", 1.0),
}


def main(folder: Path) -> None:
    for file in sorted(folder.glob("*/*/history.csv")):
        print("\n".join(section(file)), flush=True)


def section(file: Path) -> Iterator[str]:
    """One study: its settings in a line, the table, who is ahead of gossip."""
    spec = yaml.safe_load(file.with_name("spec.yaml").read_text(encoding="utf-8"))
    history = read_history(file)
    along = "time" if spec["stop"].get("time") else "iteration"
    labels = in_order(history["algorithm"])
    yield f"## {file.parent.parent.name}, {file.parent.name}\n"
    yield f"{told_of(spec)}\n"
    yield f"| | {' | '.join(short(label) for label in labels)} |"
    yield "| --- " * (len(labels) + 1) + "|"
    for name, (column, share) in MEASURES.items():
        factor, digits = (100.0, 1) if "accuracy" in column else (1.0, 3)
        cells = [with_interval(factor * values(history, label, column, share, along), digits) for label in labels]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    gossip = next((label for label in labels if family(label) == "gossip"), None)
    if gossip is None:
        return
    for name, (column, share) in MEASURES.items():
        if "loss" in column:
            theirs = values(history, gossip, column, share, along)
            words = [
                f"{short(label)} {against(values(history, label, column, share, along), theirs)}"
                for label in labels
                if label != gossip
            ]
            yield f"- {name}, minus gossip: {'; '.join(words)}"
    yield ""


def told_of(spec: dict[str, object]) -> str:
    stop, timing = spec["stop"], spec["timing"]
    assert isinstance(stop, dict)
    assert isinstance(timing, dict)
    end = f"{stop['time']:,g} virtual seconds" if stop.get("time") else f"{stop['iterations']:,} iterations"
    return f"{spec['repetitions']} repetitions of {end}, {timing['compute']:g} s a training."


def values(history: pd.DataFrame, label: str, column: str, share: float, along: str) -> np.ndarray:
    """A column at the last evaluation within that share of each run."""
    runs = runs_of(history, label)
    return np.array([float(run[run[along] <= share * run[along].max()][column].iloc[-1]) for run in runs])


def with_interval(found: np.ndarray, digits: int) -> str:
    """The mean, and how far its interval reaches."""
    if len(found) < 2:
        return number(float(found.mean()), digits)
    return f"{number(float(found.mean()), digits)} ± {number(half_width(found), digits)}"


def half_width(found: np.ndarray) -> float:
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(found) - 1))
    return quantile * float(found.std(ddof=1)) / math.sqrt(len(found))


def against(mine: np.ndarray, theirs: np.ndarray) -> str:
    """The difference of the means, and whether its interval leaves any doubt."""
    gap = float(mine.mean() - theirs.mean())
    if min(len(mine), len(theirs)) < 2:
        return number(gap, 3)
    low, high = welch(mine, theirs)
    standing = "behind" if low > 0 else "ahead" if high < 0 else "even"
    return f"{number(gap, 3)} ({number(low, 3)} to {number(high, 3)}, {standing})"


def welch(mine: np.ndarray, theirs: np.ndarray) -> Sequence[float]:
    """The interval of a difference of two means whose spreads may differ."""
    found = stats.ttest_ind(mine, theirs, equal_var=False).confidence_interval(CONFIDENCE)
    return float(found.low), float(found.high)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(f"usage: python {sys.argv[0]} FOLDER, such as results/2026-11-16-verdicts-h200")
    main(Path(sys.argv[1]))
