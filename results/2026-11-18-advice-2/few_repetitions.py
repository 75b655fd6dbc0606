"""Which interval tells two algorithms apart by few repetitions: on all studies under results/ with three or more.

    python results/2026-11-18-advice-2/few_repetitions.py

Of every pair of algorithms of a study, some repetitions are taken, and it is looked whether the interval that each
method makes of them holds the difference in the others (their own error added), and how often it leaves out zero.
`moderated` is that of `walktalk.studies.results.summary`, whose spreads come from these very studies.
"""

from __future__ import annotations

import argparse
import itertools
import json
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from walktalk.studies.results.summary import (
    CLEAR,
    COSTS,
    SPREADS,
    Known,
    _measured,
    _runs,
    _target,
    moderated,
    uncertainty,
)

MEASURES = ("iteration", "time", "bits", "loss", "accuracy")
TIMES = 20  # choices of repetitions for each pair


def tables(folder: Path) -> dict[str, list[np.ndarray]]:
    """Measure -> of every study a table of algorithms and repetitions, logarithms but for accuracy."""
    found: dict[str, list[np.ndarray]] = {measure: [] for measure in MEASURES}
    for file in sorted(folder.glob("**/history*.csv")):
        history = pd.read_csv(file)
        if not {"repetition", "algorithm"} <= set(history) or history["repetition"].nunique() < 3:
            continue
        runs = [_runs(part) for _, part in history.groupby("algorithm", sort=False)]
        target = _target(runs)
        for measure in MEASURES:
            rows = [np.array(_measured(of, measure, target, lambda run: 0)) for of in runs]
            rows = [row if measure == "accuracy" else np.log(row) for row in rows if (row > 0).all()]
            rows = [row for row in rows if np.isfinite(row).all()]
            if len(rows) > 1 and len({len(row) for row in rows}) == 1:
                found[measure].append(np.array(rows))
    return found


def intervals(x: np.ndarray, y: np.ndarray, known: float) -> dict[str, float]:
    """Method -> half the length of its interval for the difference of two means."""
    n, plain = len(x), [float(values.var(ddof=1)) for values in (x, y)]
    error = sqrt(sum(plain) / n)
    welch = sum(plain) ** 2 / (sum(v**2 for v in plain) / (n - 1)) if sum(plain) else 2.0 * n - 2
    wide, freedom = uncertainty([moderated(values, Known(known)) for values in (x, y)], [n, n])
    return {
        "twice the standard error": 2 * error,
        "pairs": float(stdtrit(n - 1, CLEAR)) * float((x - y).std(ddof=1)) / sqrt(n),
        "Welch": float(stdtrit(welch, CLEAR)) * error,
        "moderated": float(stdtrit(freedom, CLEAR)) * wide,
    }


def measured(studies: list[np.ndarray], known: float, count: int, rng: np.random.Generator) -> dict[str, Any]:
    """How often each method holds the difference, and how often it decides."""
    holds: dict[str, list[bool]] = {}
    decides: dict[str, list[bool]] = {}
    for table in studies:
        total = table.shape[1]
        if total < count + 2:
            continue
        for a, b in itertools.combinations(table, 2):
            for _ in range(TIMES):
                order = rng.permutation(total)
                mine, rest = order[:count], order[count:]
                gap, others = float((a[mine] - b[mine]).mean()), float((a[rest] - b[rest]).mean())
                for name, half in intervals(a[mine], b[mine], known).items():
                    holds.setdefault(name, []).append(abs(gap - others) <= half * sqrt(1 + count / len(rest)) + 1e-15)
                    decides.setdefault(name, []).append(abs(gap) > half)
    return {name: {"holds": float(np.mean(holds[name])), "decides": float(np.mean(decides[name]))} for name in holds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"), help="where studies are")
    args = parser.parse_args()
    rng, found = np.random.default_rng(0), {}
    for measure, studies in tables(args.results).items():
        alike = np.concatenate([np.corrcoef(table)[np.triu_indices(len(table), 1)] for table in studies])
        known = SPREADS.get(measure, COSTS)
        found[measure] = {
            "studies": len(studies),
            "algorithms": sum(len(table) for table in studies),
            "median_correlation_by_seed": float(np.nanmedian(alike)),
            **{f"{count} repetitions": measured(studies, known, count, rng) for count in (2, 3, 5)},
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
