"""The advisor against the truth: advice for many settings, and every candidate run to the end in each of them.

    OMP_NUM_THREADS=1 python results/2026-11-15-advisor/advisor.py --set reporting --out results/DATE-advisor [--part K/N]

A candidate is an algorithm with a learning rate. Its cost is the mean over repetitions of what it spends until an
evaluation shows the target, where runs end, or at three times the winner's cost. (`results/2026-11-15-advisor` is of an
advisor that asked for the mean loss over the last quarter of the way; `results/2026-11-18-advice-2` looks at the intervals.)
Those within half of the winner's cost are repeated more often, so that the winner is known. The advice is good if it
is the winner or within 10 % of its cost. Its share is its trainings over those of all candidates' first three
repetitions.

The `tuning` settings were used while the advisor was written; `reporting` has other seeds and other combinations.
`--part K/N` does every Nth setting from K on; `--merge` only puts the parts together.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import asdict, dataclass, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from walktalk.advisor import Goal, Objective, Pilots, Survey, advise_on, of_study, survey
from walktalk.core.seeds import Seed
from walktalk.learning import tasks
from walktalk.studies import StudySpec, make_spec

REPETITIONS = 3  # of every candidate: these are the full cost
MORE = 7  # of those close to the winner
CLOSE = 1.5
END = 3.0  # times the winner's cost: where a candidate that has not arrived is given up
GOOD = 1.1
TUNING_SEED, REPORTING_SEED = 7, 2026
FAMILIES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "cycle": ({}, (8, 14, 20, 32)),
    "complete": ({}, (8, 16, 24, 48)),
    "erdos_renyi": ({"p": 0.3}, (12, 20, 40, 64)),
    "torus": ({}, (9, 16, 25, 36)),
    "random_regular": ({"degree": 4}, (10, 20, 32, 64)),
    "star": ({}, (8, 12, 16)),
    "small_world": ({}, (12, 24, 40)),
    "barbell": ({}, (8, 12, 20)),
    "hypercube": ({}, (8, 16, 32, 64)),
}


@dataclass(frozen=True)
class Setting:
    """One question to the advisor."""

    topology: str
    nodes: int
    task: str
    data: float  # digits: α; quadratic: ζ²
    noise: float  # quadratic: σ²
    objective: Objective
    timing: str
    bandwidth: float  # bit/s, network timing
    compute: float  # seconds, network timing
    model_bytes: int
    target: float  # digits: loss; quadratic: share of the excess that is left
    seed: int

    def spec(self) -> StudySpec:
        network: dict[str, Any] = {"topology": self.topology, **FAMILIES[self.topology][0]}
        network |= {"dimension": self.nodes.bit_length() - 1} if self.topology == "hypercube" else {"nodes": self.nodes}
        content: dict[str, Any] = {
            "name": "advisor",
            "seed": self.seed,
            "network": network,
            "algorithms": [{"name": "async_gossip"}],
            "stop": {"iterations": 6000},
            "evaluate": {"samples": 512},
        }
        if self.timing == "network":
            content["timing"] = {
                "model": "network",
                "compute": self.compute,
                "spread": 0.3,
                "latency": 0.01,
                "bandwidth": self.bandwidth,
            }
        # Under `time` many models train at once, so the same way takes that many more trainings: start faster there.
        fast = 2.0 if self.objective == "time" else 1.0
        if self.task == "digits":
            content |= {
                "task": {"name": "digits", "alpha": self.data, "hidden": 16},
                "training": {"batch_size": 16, "local_steps": 2},
                "optimizer": {"lr": 0.03 * fast, "momentum": 0.9},
            }
        else:
            content |= {
                "task": {"name": "quadratic", "noise": self.noise, "heterogeneity": self.data, "convexity": 0.2},
                "training": {"batch_size": 1, "local_steps": 1},
                "optimizer": {"lr": 0.015 * fast, "momentum": 0.0, "nesterov": False},
            }
        return make_spec(content)

    def goal(self, spec: StudySpec) -> Goal:
        target = self.target
        if self.task == "quadratic":
            seed = Seed(spec.seed).child("data")
            facts = tasks.build("quadratic", nodes=self.nodes, seed=seed, **spec.task.settings).facts
            target = facts["f_star"] + self.target * facts["F"]
        return Goal(self.objective, target)


def settings(seed: int, count: int) -> list[Setting]:
    """Families by turns, everything else at random."""
    rng, found = random.Random(seed), []
    for k in range(count):
        family = list(FAMILIES)[k % len(FAMILIES)]
        objective: Objective = rng.choice(("iterations", "time", "time", "bits"))
        sizes = [v for v in FAMILIES[family][1] if objective != "time" or v <= 24]  # V times the trainings per second
        task = rng.choice(("quadratic", "digits"))
        found.append(
            Setting(
                topology=family,
                nodes=rng.choice(sizes),
                task=task,
                data=rng.choice((0.1, 0.5, 1.0, 10.0)) if task == "digits" else rng.choice((0.0, 1.0, 5.0)),
                noise=rng.choice((0.3, 3.0)),
                objective=objective,
                timing=rng.choice(("poisson", "network", "network")) if objective == "time" else "poisson",
                bandwidth=rng.choice((1e7, 1e8, 1e9)),
                compute=rng.choice((0.05, 0.5)),
                model_bytes=rng.choice((20_000, 1_000_000, 20_000_000)),
                target=rng.choice((0.6, 0.4)) if task == "digits" else rng.choice((0.03, 0.01)),
                seed=1000 * seed + k,
            )
        )
    return found


@dataclass(frozen=True)
class Truth:
    """What every candidate really costs."""

    cost: dict[str, float]  # infinite: not within three times the winner's
    error: dict[str, float]  # standard error, of those close to the winner
    trainings: int  # of the first repetitions of all


def find_truth(surveyed: Survey, rates: list[float]) -> Truth:
    algorithms = {candidate.algorithm: candidate for candidate in surveyed.candidates}
    candidates = [replace(candidate, lr=lr) for candidate in algorithms.values() for lr in rates]
    pilots = Pilots(surveyed.bench, [surveyed.entry(c, k) for c in candidates for k in range(REPETITIONS)])
    everyone, cost = range(len(pilots.entries)), 4 * surveyed.bench.unit

    def costs() -> list[float]:
        arrived = np.array([inf if c.arrived is None else c.arrived for c in pilots.courses])
        return [float(c) for c in arrived.reshape(-1, REPETITIONS).mean(1)]

    while cost < 1.2 * surveyed.longest and not isfinite(min(costs())):
        pilots.climb(everyone, cost)
        cost *= 1.2
    best = min(costs())
    if not isfinite(best):
        return Truth(dict.fromkeys((c.label for c in candidates), inf), {}, pilots.trainings)
    pilots.climb(everyone, END * best)
    found = costs()
    close = [k for k, value in enumerate(found) if value <= CLOSE * min(found)]
    again = Pilots(surveyed.bench, [surveyed.entry(candidates[k], REPETITIONS + j) for k in close for j in range(MORE)])
    again.climb(range(len(again.entries)), 2 * END * best)
    error = {}
    for place, k in enumerate(close):
        mine = [
            *pilots.courses[k * REPETITIONS : (k + 1) * REPETITIONS],
            *again.courses[place * MORE : (place + 1) * MORE],
        ]
        values = np.array([2 * END * best if c.arrived is None else c.arrived for c in mine])
        found[k], error[candidates[k].label] = float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)
    return Truth({c.label: found[k] for k, c in enumerate(candidates)}, error, pilots.trainings)


def measure(setting: Setting) -> dict[str, Any]:
    spec = setting.spec()
    goal = setting.goal(spec)
    began = time.perf_counter()
    surveyed = survey(of_study(spec, "cpu"), goal, model_bytes=setting.model_bytes)
    advice = advise_on(surveyed, lambda text, share: None)
    took = time.perf_counter() - began
    began = time.perf_counter()
    rates = sorted({one.candidate.lr for one in advice.tried})  # also those beyond the edge
    truth = find_truth(survey(of_study(spec, "cpu"), goal, model_bytes=setting.model_bytes, seed="truth"), rates)
    full = time.perf_counter() - began
    winner = min(truth.cost, key=lambda label: truth.cost[label])
    best, mine = truth.cost[winner], truth.cost[advice.best.label]
    return {
        **asdict(setting),
        "target_loss": goal.target_loss,
        "candidates": len(truth.cost),
        "winner": winner,
        "winner_cost": best,
        "winner_error": truth.error.get(winner),
        "advice": advice.best.label,
        "advice_cost": mine,
        "ratio": mine / best if isfinite(best) else None,
        "expected_cost": advice.cost,
        "low": advice.low,
        "high": advice.high,
        "sure": advice.sure,
        "good": isfinite(best) and mine <= GOOD * best,
        "trainings": advice.trainings,
        "full_trainings": truth.trainings,
        "share": advice.trainings / truth.trainings,
        "seconds": took,
        "full_seconds": full,
        "reached": isfinite(best),
    }


def algorithm(labels: pd.Series) -> pd.Series:
    """A candidate's label without its learning rate."""
    return labels.str.split("-lr").str[0]


def placeless(labels: pd.Series) -> pd.Series:
    """An algorithm's label without its aggregator."""
    return labels.str.replace(r"-at\d+", "", regex=True)


def fixed_rule(row: Any) -> str:
    """What somebody might say without looking: one walk, or gossip where time counts, at the largest rate tried.

    For comparison with `winner_exactly`: how much of it is knowing the rule.
    """
    gossip = row["objective"] == "time"
    rate = {"digits": 0.09, "quadratic": 0.045}[row["task"]] * (2 if gossip else 1)
    walk = row["winner"].partition("-lr")[0] if row["winner"].startswith("multi_walk-1-") else "multi_walk-1"
    return f"{'async_gossip-pairwise' if gossip else walk}-lr{rate:g}"


def summary(table: pd.DataFrame, which: str) -> dict[str, Any]:
    real = table[table["reached"]]
    misses = real[~real["good"]]
    columns = ["topology", "nodes", "task", "data", "objective", "timing", "winner", "advice", "ratio", "sure"]
    return {
        "name": f"advisor-{which}",
        "settings": len(real),
        "unreached": int((~table["reached"]).sum()),
        "value": float(real["good"].mean()),
        "baseline": 0.9,
        "ratio": float(real["good"].mean() / 0.9),
        "winner_exactly": float((real["winner"] == real["advice"]).mean()),
        "right_algorithm": float((algorithm(real["winner"]) == algorithm(real["advice"])).mean()),
        "share_of_full_cost": float(real["trainings"].sum() / real["full_trainings"].sum()),
        "share_mean": float(real["share"].mean()),
        "share_max": float(real["share"].max()),
        "share_at_most_5_percent": float((real["share"] <= 0.05).mean()),
        "share_of_one_repetition": float(REPETITIONS * real["trainings"].sum() / real["full_trainings"].sum()),
        "mean_sure": float(real["sure"].mean()),
        "true_cost_in_the_interval": float(
            (
                (real["winner"] != real["advice"])
                | ((real["advice_cost"] >= real["low"]) & (real["advice_cost"] <= real["high"]))
            ).mean()
        ),
        "by_objective": {str(k): float(g["good"].mean()) for k, g in real.groupby("objective")},
        "winners": {str(k): int(n) for k, n in placeless(algorithm(real["winner"])).value_counts().items()},
        "a_fixed_rule_wins": float((real["winner"] == real.apply(fixed_rule, axis=1)).mean()),
        "misses": json.loads(misses[columns].to_json(orient="records")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=("tuning", "reporting"), default="reporting", dest="which")
    parser.add_argument("--count", type=int, help="how many settings; 18 for tuning, 45 for reporting")
    parser.add_argument("--out", type=Path, help="folder for the table and the summary")
    parser.add_argument("--part", default="0/1", help="K/N: every Nth setting, from K on")
    parser.add_argument("--merge", action="store_true", help="only put the parts in --out together")
    parser.add_argument("--json", action="store_true", help="one object and nothing else")
    args = parser.parse_args()
    torch.set_num_threads(1)
    out = args.out or Path(".")
    if args.merge:
        table = pd.concat([pd.read_csv(f) for f in sorted(out.glob(f"{args.which}-part-*.csv"))], ignore_index=True)
    else:
        part, parts = (int(n) for n in args.part.split("/"))
        seed, count = (TUNING_SEED, 18) if args.which == "tuning" else (REPORTING_SEED, 45)
        chosen = settings(seed, args.count or count)[part::parts]
        rows = []
        for setting in chosen:
            rows.append(measure(setting))
            table = pd.DataFrame(rows)
            if args.out:
                out.mkdir(parents=True, exist_ok=True)
                table.to_csv(out / f"{args.which}-part-{part}.csv", index=False, float_format="%.6g")
            if not args.json:
                print(line(rows[-1]), file=sys.stderr, flush=True)
    found = summary(table, args.which)
    if args.out and args.merge:
        table.to_csv(out / f"{args.which}.csv", index=False, float_format="%.6g")
        (out / f"{args.which}.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


def line(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return f"{row['topology']:>15} {row['nodes']:3d} {row['task']} {row['objective']}: nobody arrived"
    verdict = "good" if row["good"] else "MISS"
    what = f"{row['topology']:>15} {row['nodes']:3d} {row['task'][:6]} {row['objective'][:5]:>5} {row['timing'][:4]}"
    who = f"advice {row['advice']} winner {row['winner']} {row['winner_cost']:.4g}"
    cost = f"share {row['share']:.3f} of {row['full_trainings']}, {row['seconds']:.0f}+{row['full_seconds']:.0f} s"
    return f"{what} {verdict} ratio {row['ratio']:.2f} {who} {cost} sure {row['sure']:.2f}"


if __name__ == "__main__":
    main()
