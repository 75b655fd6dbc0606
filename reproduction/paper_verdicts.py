"""What runs of `walktalk paper run FIGURE --variant …` say about open verdicts, from their histories alone.

As Markdown (of a loss or an accuracy the mean over the last evaluations until then is taken):

    python reproduction/paper_verdicts.py results/2026-11-16-verdicts-h200

Of every study in the folder (FIGURE-VARIANT/PANEL with `spec.yaml` and `history.csv`): the loss at the end, before the
learning rate falls, and between its two falls, of the aggregated model and, where that was kept, of the mean of the
walks' or nodes' models, each with the 95 % interval of its mean (Student's t over the repetitions); how far every
number of walks is from gossip, with Welch's interval of that, and whether it is sure among all that are read of a
study; and, where the same study is there with the variant `no-failures`, too, how far each algorithm is from itself
without failures.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from claims.runs import FIRST_DECAY, in_order, runs_of, short, value_until
from claims.spread import number
from walktalk.records import read_history
from walktalk.reproduction.paper.drawing.who_wins import family
from walktalk.studies import CLEAR, decide, holm, known_from

CONFIDENCE = 0.95
LOST = "not recorded"
CALM = "no-failures"  # the variant, and the end of its folder's name
BETWEEN = 5 / 6  # of the way: the rate falls at 75 % and at 90 %
NEARLY = 0.999  # of the way: the last evaluation of a run that ends by time may be a moment before it
MEASURES = {  # what is told of a run: column, share of its way
    "end": ("train_loss", 1.0),
    "end, mean of the models": ("mean_train_loss", 1.0),
    "between its two falls": ("train_loss", BETWEEN),
    "before the rate falls": ("train_loss", FIRST_DECAY),
    "before, mean of the models": ("mean_train_loss", FIRST_DECAY),
    "accuracy at the end, %": ("test_accuracy", 1.0),
}


def main(folder: Path) -> None:
    for file in sorted(folder.glob("*/*/history.csv")):
        print("\n".join(section(file)), flush=True)


def section(file: Path) -> Iterator[str]:
    """One study: its settings in a line, the table, who is ahead of gossip."""
    study = Study.of(file)
    labels = in_order(study.history["algorithm"])
    measures = {name: one for name, one in MEASURES.items() if one[0] in study.history}
    yield f"## {file.parent.parent.name}, {file.parent.name}\n"
    yield f"{study.in_words()}\n"
    yield f"| | {' | '.join(short(label) for label in labels)} |"
    yield "| --- " * (len(labels) + 1) + "|"
    for name, (column, share) in measures.items():
        factor, digits = (100.0, 1) if "accuracy" in column else (1.0, 3)
        found = [factor * study.values(label, column, share) for label in labels]
        yield f"| {name} | {' | '.join(with_interval(each, digits, study.repetitions) for each in found)} |"
    yield ""
    gossip = next((label for label in labels if family(label) == "gossip"), None)
    losses = {name: one for name, one in measures.items() if "loss" in one[0]}
    pairs: list[Compared] = []
    for name, (column, share) in losses.items() if gossip is not None else ():
        theirs = study.values(gossip, column, share)
        walks = [label for label in labels if label != gossip]
        pairs += [(f"{name}, minus gossip", label, study.values(label, column, share), theirs) for label in walks]
    calm = file.parents[1].with_name(f"{file.parents[1].name}-{CALM}") / file.parent.name / file.name
    if calm.is_file():
        other = Study.of(calm)
        for name, (column, share) in losses.items():
            title = f"{name}, minus the same without failures"
            pairs += [
                (title, label, study.values(label, column, share), other.values(label, column, share))
                for label in labels
            ]
    yield from comparisons(pairs)
    yield ""


@dataclass(frozen=True)
class Study:
    """A study's settings and histories."""

    spec: dict[str, Any]
    history: pd.DataFrame

    @classmethod
    def of(cls, file: Path) -> Study:
        """The one whose history this is."""
        return cls(yaml.safe_load(file.with_name("spec.yaml").read_text(encoding="utf-8")), read_history(file))

    @property
    def repetitions(self) -> int:
        return int(self.spec["repetitions"])

    def in_words(self) -> str:
        stop, compute = self.spec["stop"], self.spec["timing"]["compute"]
        end = f"{stop['time']:,g} virtual seconds" if stop.get("time") else f"{stop['iterations']:,} iterations"
        return f"{self.repetitions} repetitions of {end}, {compute:g} s a training."

    def values(self, label: str, column: str, share: float) -> np.ndarray:
        """A column at that share of each run; runs whose records end before are left out."""
        stop = self.spec["stop"]
        along, end = ("time", float(stop["time"])) if stop.get("time") else ("iteration", float(stop["iterations"]))
        runs = [run for run in runs_of(self.history, label) if run[along].max() >= NEARLY * share * end]
        return np.array([value_until(run, column, share, along=along, end=end) for run in runs])


def with_interval(found: np.ndarray, digits: int, usual: int) -> str:
    """The mean, how far its interval reaches, and of how many runs it is, where some are missing."""
    count = "" if len(found) == usual else f" (n = {len(found)})"
    if len(found) == 0:
        return LOST
    if len(found) == 1:
        return number(float(found.mean()), digits) + count
    return f"{number(float(found.mean()), digits)} ± {number(half_width(found), digits)}{count}"


def half_width(found: np.ndarray) -> float:
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(found) - 1))
    return quantile * float(found.std(ddof=1)) / math.sqrt(len(found))


Compared = tuple[str, str, np.ndarray, np.ndarray]  # line, algorithm, its values, and those it is compared with


def comparisons(pairs: Sequence[Compared]) -> Iterator[str]:
    """Lines of differences: each with its interval, and whether it leaves any doubt among all that are read here."""
    known = known_from([values for *_, mine, theirs in pairs for values in (mine, theirs)])
    decided = {
        place: found
        for place, (_, _, *both) in enumerate(pairs)
        if min(map(len, both)) and (found := decide("loss", *sorted(both, key=np.mean), known=known)) is not None
    }
    together = dict(zip(decided, holm([one.chance for one in decided.values()]), strict=True))
    lines: dict[str, list[str]] = {}
    for place, (title, label, mine, theirs) in enumerate(pairs):
        lines.setdefault(title, []).append(f"{short(label)} {against(mine, theirs, together.get(place))}")
    yield from (f"- {title}: {'; '.join(words)}" for title, words in lines.items())


def against(mine: np.ndarray, theirs: np.ndarray, chance: float | None) -> str:
    """The difference of the means with its own interval, and whether it is sure among all that are read with it."""
    if min(len(mine), len(theirs)) == 0:
        return LOST
    gap = float(mine.mean() - theirs.mean())
    if chance is None:
        return number(gap, 3)
    low, high = welch(mine, theirs)
    standing = "even" if chance < CLEAR or low <= 0 <= high else "behind" if gap > 0 else "ahead"
    return f"{number(gap, 3)} ({number(low, 3)} to {number(high, 3)}, {standing})"


def welch(mine: np.ndarray, theirs: np.ndarray) -> Sequence[float]:
    """The interval of a difference of two means whose spreads may differ."""
    found = stats.ttest_ind(mine, theirs, equal_var=False).confidence_interval(CONFIDENCE)
    return float(found.low), float(found.high)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(f"usage: python {sys.argv[0]} FOLDER, such as results/2026-11-16-verdicts-h200")
    main(Path(sys.argv[1]))
