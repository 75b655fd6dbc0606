"""Whether the advisor's intervals hold what they say: advice in many settings, then ten runs of what it advises.

    OMP_NUM_THREADS=1 python results/2026-11-16-advice/advice_coverage.py --set fresh --out results/2026-11-16-advice

The runs are those of the printed command: the study with the advised algorithm, learning rate and stop, by `run_study`,
with the study's own seed, of which the advisor's pilots have no share. Counted is how many of them lie inside the 95 %
interval, of the cost where they have a target and of the last loss where they have a budget, and in how many settings
their mean does. The set `looking` was looked at while intervals were made; `fresh` has other seeds and other
combinations, and was run once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from walktalk.advisor import Advice, Goal, advise_study
from walktalk.studies import StudySpec, make_spec, run_study, spec_mapping

REPETITIONS = 10
SEEDS = {"looking": 31, "fresh": 1116}
GRAPHS: dict[str, dict[str, Any]] = {
    "cycle-8": {"topology": "cycle", "nodes": 8},
    "complete-10": {"topology": "complete", "nodes": 10},
    "erdos_renyi-12": {"topology": "erdos_renyi", "nodes": 12, "p": 0.3},
    "torus-9": {"topology": "torus", "nodes": 9},
    "star-7": {"topology": "star", "nodes": 7},
    "barbell-8": {"topology": "barbell", "nodes": 8},
    "small_world-12": {"topology": "small_world", "nodes": 12},
}
AXES = {"iterations": "iteration", "time": "time", "bits": "bits"}


@dataclass(frozen=True)
class Setting:
    """One question to the advisor."""

    graph: str
    task: str
    data: float  # digits: α; quadratic: ζ²
    objective: str
    asked: str  # target or budget
    amount: float  # the target loss (quadratic: share of the excess), or iterations of one walk that the budget buys
    algorithms: str  # what to choose among
    timing: str
    every: int  # iterations between evaluations
    seed: int

    def spec(self) -> StudySpec:
        content: dict[str, Any] = {
            "name": "coverage",
            "seed": self.seed,
            "network": GRAPHS[self.graph],
            "algorithms": [{"name": "async_gossip"}],
            "stop": {"iterations": 3000},
            "evaluate": {"every": self.every, "samples": 512},
        }
        if self.timing == "network":
            content["timing"] = {"model": "network", "compute": 0.2, "spread": 0.3, "bandwidth": 1e7}
        if self.task == "digits":
            content |= {
                "task": {"name": "digits", "alpha": self.data, "hidden": 16},
                "training": {"batch_size": 16, "local_steps": 2},
                "optimizer": {"lr": 0.05, "momentum": 0.9},
            }
        else:
            content |= {
                "task": {"name": "quadratic", "noise": 0.5, "heterogeneity": self.data, "convexity": 0.3},
                "training": {"batch_size": 4, "local_steps": 1},
                "optimizer": {"lr": 0.04, "momentum": 0.0, "nesterov": False},
            }
        return make_spec(content)

    def goal(self, spec: StudySpec) -> Goal:
        if self.asked == "target":
            return Goal(self.objective, self.amount if self.task == "digits" else None)  # type: ignore[arg-type]
        seconds = spec.timing.d if self.timing == "poisson" else spec.timing.compute
        size = {"iterations": 1.0, "time": seconds, "bits": 8.0 * 4_000}[self.objective]
        return Goal(self.objective, budget=round(self.amount * size, 3))  # type: ignore[arg-type]


def settings(seed: int, count: int) -> list[Setting]:
    """Graphs by turns, everything else at random."""
    rng, found = random.Random(seed), []
    for k in range(count):
        task = rng.choice(("digits", "digits", "quadratic"))
        asked = rng.choice(("target", "target", "budget"))
        targets = rng.choice((0.8, 0.5, 0.35))
        found.append(
            Setting(
                graph=list(GRAPHS)[k % len(GRAPHS)],
                task=task,
                data=rng.choice((0.1, 0.5, 1.0, 10.0)) if task == "digits" else rng.choice((0.0, 1.0, 4.0)),
                objective=rng.choice(tuple(AXES)),
                asked=asked,
                amount=targets if asked == "target" else rng.choice((60.0, 150.0, 300.0)),
                algorithms=rng.choice(("", "", "async_gossip", "multi_walk", "local_dsgd,d2,async_gossip")),
                timing=rng.choice(("poisson", "network")),
                every=rng.choice((2, 5, 20)),
                seed=1000 * seed + k,
            )
        )
    return found


def measure(setting: Setting) -> dict[str, Any]:
    """The advice, then the runs."""
    began = time.process_time()
    spec = setting.spec()
    among = setting.algorithms.split(",") if setting.algorithms else None
    advice = advise_study(spec, setting.goal(spec), algorithms=among, device="cpu")
    middle = time.process_time()
    values = runs_of(advice)
    answer = advice.answer
    mean = float(np.mean(values))
    return {
        **asdict(setting),
        "advice": advice.best.label,
        "reached": advice.reached,
        "expected": answer.value,
        "low": answer.low,
        "high": answer.high,
        "mean": mean,
        "std": float(np.std(values, ddof=1)),
        "inside": int(sum(answer.low <= value <= answer.high for value in values)),
        "mean_inside": bool(answer.low <= mean <= answer.high),
        "off": answer.value / mean - 1,
        "trainings": advice.trainings,
        "advice_seconds": middle - began,
        "runs_seconds": time.process_time() - middle,
    }


def runs_of(advice: Advice) -> list[float]:
    """Where ten runs stop on the objective's axis; with a budget, the losses that they end with."""
    spec = make_spec({**spec_mapping(advice.spec), "repetitions": REPETITIONS})
    last = run_study(spec, device="cpu").history.groupby("repetition").last()
    goal = advice.ground.goal
    return [float(value) for value in last["train_loss" if goal.budget is not None else AXES[goal.objective]]]


def summary(table: pd.DataFrame, which: str) -> dict[str, Any]:
    off = table["off"]
    return {
        "name": f"advice-coverage-{which}",
        "settings": len(table),
        "value": float(table["inside"].sum() / (REPETITIONS * len(table))),
        "baseline": 0.9,
        "ratio": float(table["inside"].sum() / (REPETITIONS * len(table)) / 0.9),
        "settings_whose_mean_is_inside": float(table["mean_inside"].mean()),
        "settings_with_nine_or_more_inside": float((table["inside"] >= 9).mean()),
        "expected_over_mean_less_1": {
            "median": float(off.median()),
            "least": float(off.min()),
            "most": float(off.max()),
        },
        "width": float((table["high"] / table["low"]).median()),
        "by_asked": {str(k): float(g["inside"].mean() / REPETITIONS) for k, g in table.groupby("asked")},
        "by_objective": {str(k): float(g["inside"].mean() / REPETITIONS) for k, g in table.groupby("objective")},
        "seconds": float(table["advice_seconds"].sum() + table["runs_seconds"].sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=tuple(SEEDS), default="fresh", dest="which")
    parser.add_argument("--count", type=int, default=28, help="how many settings")
    parser.add_argument("--out", type=Path, help="folder for the table and the summary")
    parser.add_argument("--part", default="0/1", help="K/N: every Nth setting, from K on; --out keeps it apart")
    parser.add_argument("--merge", action="store_true", help="only put the parts in --out together")
    parser.add_argument("--json", action="store_true", help="one object and nothing else")
    args = parser.parse_args()
    torch.set_num_threads(1)
    out, part = args.out or Path("."), args.part.partition("/")
    if args.merge:
        table = pd.concat([pd.read_csv(file) for file in sorted(out.glob(f"{args.which}-part-*.csv"))])
        table = table.sort_values("seed", ignore_index=True)
    else:
        rows = []
        for setting in settings(SEEDS[args.which], args.count)[int(part[0]) :: int(part[2])]:
            rows.append(measure(setting))
            if not args.json:
                print(line(rows[-1]), file=sys.stderr, flush=True)
        table = pd.DataFrame(rows)
    found = summary(table, args.which)
    if args.out:
        whole = args.merge or int(part[2]) == 1
        out.mkdir(parents=True, exist_ok=True)
        name = args.which if whole else f"{args.which}-part-{part[0]}"
        table.to_csv(out / f"{name}.csv", index=False, float_format="%.5g")
        if whole:
            (out / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


def line(row: dict[str, Any]) -> str:
    what = f"{row['graph']:>14} {row['task'][:6]} {row['data']:<4} {row['objective'][:5]:>5} {row['asked']}"
    said = f"{row['expected']:.4g} ({row['low']:.4g} to {row['high']:.4g}), runs {row['mean']:.4g} ± {row['std']:.2g}"
    took = f"{row['advice_seconds']:.0f}+{row['runs_seconds']:.0f} s"
    return f"{what} {row['advice']}: {said}, {row['inside']} inside, {took}"


if __name__ == "__main__":
    main()
