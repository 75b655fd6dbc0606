"""The advisor against the truth: advice for settings drawn by a seed, and every candidate run to the end in each.

    OMP_NUM_THREADS=1 python results/2026-11-19-advisor/advisor.py --out results/2026-11-19-advisor --jobs 16

A setting is a task (quadratics, digits, tables and measurements of scikit-learn, each with its model), a graph, a way
to count time, an objective, a target, and the learning rate that somebody begins with, which may be three times too
small or too large. The `development` settings were looked at while the advisor was changed; `fresh` ones, of another
seed that was written here before, were drawn for the table in docs/advisor.md alone.

The truth of a setting: every algorithm that the advisor considers, at rates of 0.3, 1 and 3 times the given one, and
further rates beyond for as long as the best of an algorithm is at the edge and may still come near the winner; three
runs of each (their trainings are the whole cost), 12 more of all within half of the winner's mean cost, 30 more of all
within a quarter of it. A run costs what it has spent at the first evaluation that shows the target, or three times the
winner's cost where it shows none by then.

The advice is right if the mean cost of what it names is within 10 % of the least; its share is its trainings over
those of the whole. What is in the folder already is not done again: `truth/NAME.json` of each setting, and
`advice-SET.csv`, which `--again` makes anew.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn import datasets
from torch import nn

import walktalk as wt
from walktalk.advisor import Candidate, Goal, Pilots, Situation, Survey, advise_in, make_survey, of_foundation
from walktalk.api.train import study_from_arguments

SEEDS = {"development": 3401, "fresh": 341911}
COUNTS = {"development": 48, "fresh": 66}
REPETITIONS, MORE, MOST = 3, 12, 30
CLOSE, CLOSER = 1.5, 1.25
END = 3.0  # times the winner's cost: where a run that has not arrived is given up
GOOD = 1.1
FACTORS = (0.3, 1.0, 3.0)
FURTHER = 5  # rates beyond these, either way
GRAPHS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "cycle": (wt.graphs.cycle, (6, 9, 14, 20)),
    "complete": (wt.graphs.complete, (6, 10, 16)),
    "erdos_renyi": (lambda n: wt.graphs.erdos_renyi(n, 0.35, seed=n), (10, 16, 24)),
    "torus": (lambda n: wt.graphs.torus(int(n**0.5)), (9, 16)),
    "star": (wt.graphs.star, (6, 12)),
    "barbell": (wt.graphs.barbell, (8, 12)),
    "hypercube": (lambda n: wt.graphs.hypercube(n.bit_length() - 1), (8, 16)),
}
# Task: the rate that suits it under iterations, and its momentum.
TASKS = {
    "quadratic": (0.02, 0.0),
    "digits": (0.05, 0.9),
    "cancer": (0.02, 0.9),
    "wine": (0.02, 0.9),
    "diabetes": (0.01, 0.9),
    "table": (0.02, 0.9),
    "digits linear": (0.03, 0.0),
}


@dataclass(frozen=True)
class Setting:
    """One question to the advisor."""

    name: str
    task: str
    skew: float  # 0: sites are alike; 1: very different
    noise: float  # of a quadratic
    graph: str
    nodes: int
    objective: str
    timing: str
    compute: float  # seconds of a training
    bandwidth: float  # bit/s
    model_bytes: int
    left: float  # of what there is to gain: the target
    rate: float  # times that which suits the task: what somebody begins with
    every: int  # iterations from one evaluation to the next
    seed: int


def settings(which: str) -> list[Setting]:
    """Tasks and graphs by turns, everything else at random."""
    rng, found = random.Random(SEEDS[which]), []
    for k in range(COUNTS[which]):
        task, graph = list(TASKS)[k % len(TASKS)], list(GRAPHS)[(k + k // len(TASKS)) % len(GRAPHS)]
        objective = ("iterations", "time", "bits")[(k + k // 7) % 3]
        found.append(
            Setting(
                name=f"{which}-{k:02d}",
                task=task,
                skew=rng.choice((0.0, 0.5, 1.0)),
                noise=rng.choice((0.3, 3.0)),
                graph=graph,
                nodes=rng.choice(GRAPHS[graph][1]),
                objective=objective,
                timing=rng.choice(("poisson", "network", "network")),
                compute=rng.choice((0.05, 0.5)),
                bandwidth=rng.choice((1e7, 1e8, 1e9)),
                model_bytes=rng.choice((20_000, 1_000_000, 20_000_000)),
                left=rng.choice((0.2, 0.1, 0.04)),
                rate=rng.choice((0.3, 1.0, 1.0, 3.0)),
                every=rng.choice((10, 25)),
                seed=100 * SEEDS[which] + k,
            )
        )
    return found


# -- tasks ------------------------------------------------------------------------------------------------------------


@cache
def samples_of(task: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of mean 0 and deviation 1, and targets: classes, or numbers of deviation 1."""
    if task == "table":
        rng = np.random.default_rng(7)
        x = rng.normal(size=(1200, 12))
        score = 1.5 * x[:, 0] - x[:, 1] + x[:, 2] * x[:, 3] + np.sin(2 * x[:, 4]) + 0.5 * rng.normal(size=1200)
        return x.astype(np.float32), (score > 0).astype(np.int64)
    load = {"cancer": datasets.load_breast_cancer, "wine": datasets.load_wine, "diabetes": datasets.load_diabetes}
    x, y = (load.get(task) or datasets.load_digits)(return_X_y=True)
    x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-6) if task in load else x / 16
    y = ((y - y.mean()) / y.std()).astype(np.float32)[:, None] if task == "diabetes" else y.astype(np.int64)
    return x.astype(np.float32), y


def parts_of(y: np.ndarray, nodes: int, skew: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Every node's samples: as they come at skew 0, sorted by target at skew 1, a mixture between."""
    order = y.reshape(len(y), -1)[:, 0].astype(float)
    place = (1 - skew) * rng.random(len(y)) + skew * order.argsort(kind="stable").argsort() / len(y)
    return [np.sort(part) for part in np.array_split(place.argsort(), nodes)]


def task_of(one: Setting) -> Any:
    """The task; its model begins alike in all runs of a setting."""
    if one.task == "quadratic":
        return wt.tasks.quadratic(
            one.nodes, one.seed, noise=one.noise, heterogeneity=5 * one.skew, convexity=0.2, dimension=20
        )
    x, y = samples_of(one.task)
    parts = parts_of(y, one.nodes, 0.9 * one.skew, np.random.default_rng(one.seed))
    columns, outputs = x.shape[1], 1 if one.task == "diabetes" else int(y.max()) + 1
    torch.manual_seed(one.seed)
    hidden = {"digits": 16, "wine": 12, "table": 16}.get(one.task)
    linear = nn.Linear(columns, outputs)
    model = (
        linear if hidden is None else nn.Sequential(nn.Linear(columns, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
    )
    loss = nn.functional.mse_loss if one.task == "diabetes" else nn.functional.cross_entropy
    data = [(torch.tensor(x[part]), torch.tensor(y[part])) for part in parts]
    return wt.tasks.torch(model, loss, data, name=one.task.replace(" ", "-"))


def target_of(one: Setting, task: Any) -> float:
    """Where this share is left of what full passes over all data gain: people know such a number."""
    if one.task == "quadratic":
        return float(task.facts["f_star"] + one.left / 5 * task.facts["F"])
    model = task.initial(0)
    adam, losses = torch.optim.Adam(model.parameters(), 0.02), []
    for _ in range(400):
        adam.zero_grad()
        loss = task.loss(model(task.inputs), task.targets)
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
    return float(f"{min(losses) + one.left * (losses[0] - min(losses)):.4g}")


def situation_of(one: Setting) -> tuple[Situation, Goal]:
    """What the advisor is asked about."""
    task = task_of(one)
    rate, momentum = TASKS[one.task]
    # Under `time` many models train at once, so the same way takes that many more trainings: people start faster there.
    rate *= one.rate * (2.0 if one.objective == "time" else 1.0)
    network = {"model": "network", "compute": one.compute, "spread": 0.3, "latency": 0.01, "bandwidth": one.bandwidth}
    training = wt.Training(
        optimizer=wt.SGD(lr=float(f"{rate:.3g}"), momentum=momentum, nesterov=momentum > 0),
        batch_size=1 if one.task == "quadratic" else 16,
        local_steps=1 if one.task == "quadratic" else 2,
        timing=network if one.timing == "network" else {"model": "poisson", "d": one.compute},
        stop=wt.Stop(iterations=6000),
        evaluate=wt.Evaluate(every=one.every),
        seed=one.seed,
    )
    base = study_from_arguments(task, "multi_walk", GRAPHS[one.graph][0](one.nodes), training, {"name": "advice"})
    situation = replace(of_foundation(base, "cpu"), named=[])
    return situation, Goal(one.objective, target_of(one, task))  # type: ignore[arg-type]


# -- what everything costs --------------------------------------------------------------------------------------------


class Truth:
    """What every candidate of a setting really costs."""

    def __init__(self, surveyed: Survey) -> None:
        self.survey = surveyed
        self.costs: dict[Candidate, list[float]] = {}
        self.hopes: dict[Candidate, float] = {}  # what it would come to at its pace, of those that never arrived
        self.trainings = 0

    @property
    def best(self) -> float:
        """The least mean cost of any candidate."""
        return min((float(np.mean(costs)) for costs in self.costs.values()), default=inf)

    def find(self) -> None:
        """Rates as given, rates beyond, and more runs of the best."""
        self.run(self.survey.candidates, range(REPETITIONS))
        for _ in range(FURTHER if isfinite(self.best) else 0):
            beyond = [candidate for label in self.algorithms() if (candidate := self.beyond(label)) is not None]
            if not beyond:
                break
            self.run(beyond, range(REPETITIONS))
        for within, first, count in ((CLOSE, REPETITIONS, MORE), (CLOSER, REPETITIONS + MORE, MOST)):
            close = [one for one, costs in self.costs.items() if np.mean(costs) <= within * self.best]
            if isfinite(self.best):
                self.run(close, range(first, first + count), counted=False)

    def algorithms(self) -> list[str]:
        return list(dict.fromkeys(one.algorithm for one in self.costs))

    def beyond(self, algorithm: str) -> Candidate | None:
        """The next rate of an algorithm; None where its best is between two, or can no longer come near the winner."""
        rates = sorted((one for one in self.costs if one.algorithm == algorithm), key=lambda one: one.lr)
        expected = {one: min(float(np.mean(self.costs[one])), self.hopes[one]) for one in rates}
        first = min(rates, key=lambda one: expected[one])
        if expected[first] > 2 * 3 * self.best:
            return None
        if first is rates[-1]:
            return replace(first, lr=float(f"{3 * first.lr:.3g}"))
        return replace(first, lr=float(f"{first.lr / 3:.3g}")) if first is rates[0] else None

    def run(self, candidates: Sequence[Candidate], repetitions: range, counted: bool = True) -> None:
        """Runs of these until the target, or until they have cost three times the winner's."""
        count = len(repetitions)
        pilots = Pilots(self.survey.bench, [self.survey.entry(one, k) for one in candidates for k in repetitions])
        everyone, cost = range(len(pilots.entries)), 4 * self.survey.bench.unit
        grouped = [pilots.curves[k : k + count] for k in range(0, len(everyone), count)]

        def means() -> list[float]:
            return [float(np.mean([inf if c.arrived is None else c.arrived for c in of])) for of in grouped]

        while cost < 2 * self.survey.longest and not isfinite(min([self.best, *means()])):
            pilots.climb(everyone, cost)
            cost *= 1.2
        end = END * min([self.best, *means()])
        if isfinite(end):
            pilots.climb(everyone, end)
        self.trainings += pilots.trainings if counted else 0
        for one, curves in zip(candidates, grouped, strict=True):
            arrived = [end if curve.arrived is None else curve.arrived for curve in curves]
            late = any(curve.arrived is None for curve in curves)
            if one not in self.costs:
                self.hopes[one] = float(np.median([c.expected_cost() for c in curves])) if late else inf
                self.costs[one] = [inf] if all(curve.arrived is None for curve in curves) else arrived
            else:
                self.costs[one] += arrived


def truth_of(one: Setting, folder: Path) -> dict[str, Any]:
    """The truth of a setting, from its file or by measuring it."""
    file = folder / f"{one.name}.json"
    if file.is_file():
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found
    began = time.process_time()
    situation, goal = situation_of(one)
    truth = Truth(make_survey(situation, goal, model_bytes=one.model_bytes, seed="truth"))
    truth.find()
    found = {
        "setting": asdict(one),
        "target_loss": goal.target_loss,
        "trainings": truth.trainings,
        "seconds": round(time.process_time() - began, 1),
        "costs": {
            candidate.label: [round(cost, 6) if isfinite(cost) else None for cost in costs]
            for candidate, costs in truth.costs.items()
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(found) + "\n", encoding="utf-8")
    part.replace(file)
    return found


# -- the advice -------------------------------------------------------------------------------------------------------


def ask(one: Setting, folder: Path) -> dict[str, Any]:
    """A row of the table: the advice, and what the truth says of it."""
    truth = truth_of(one, folder)
    means = {label: inf if None in costs else float(np.mean(costs)) for label, costs in truth["costs"].items()}
    winner = min(means, key=lambda label: means[label])
    row = asdict(one) | {"target_loss": truth["target_loss"], "candidates": len(means)}
    if not isfinite(means[winner]):
        return row | {"reached": False}
    situation, goal = situation_of(one)
    began = time.process_time()
    advice = advise_in(situation, goal, model_bytes=one.model_bytes)
    took = time.process_time() - began
    mine = means.get(advice.best.label)
    if mine is None or len(truth["costs"][advice.best.label]) < REPETITIONS + MORE:  # it says little of this one
        more = Truth(make_survey(situation, goal, model_bytes=one.model_bytes, seed="truth"))
        more.costs = {replace(advice.best, lr=-1.0): [means[winner]]}
        more.run([advice.best], range(REPETITIONS + MORE + MOST), counted=False)
        mine = float(np.mean(more.costs[advice.best]))
    return row | {
        "reached": True,
        "winner": winner,
        "winner_cost": means[winner],
        "winner_error": float(np.std(truth["costs"][winner], ddof=1) / len(truth["costs"][winner]) ** 0.5),
        "advice": advice.best.label,
        "advice_cost": mine,
        "ratio": mine / means[winner],
        "good": mine <= GOOD * means[winner],
        "expected_cost": advice.cost,
        "low": advice.low,
        "high": advice.high,
        "sure": advice.sure,
        "trainings": advice.trainings,
        "all_trainings": truth["trainings"],
        "share": advice.trainings / truth["trainings"],
        "seconds": took,
        "all_seconds": truth["seconds"],
    }


def summary(table: pd.DataFrame, which: str) -> dict[str, Any]:
    real = table[table["reached"]].copy()
    real["good"] = real["good"].astype(bool)
    sure = real.groupby(pd.cut(real["sure"], [0, 0.5, 0.7, 0.8, 0.9, 1.0]), observed=True)
    columns = ["name", "task", "graph", "nodes", "objective", "rate", "winner", "advice", "ratio", "sure"]
    return {
        "name": f"advisor-{which}",
        "settings": len(real),
        "unreached": int((~table["reached"].astype(bool)).sum()),
        "value": float(real["good"].mean()),
        "baseline": 0.9,
        "ratio": float(real["good"].mean() / 0.9),
        "winner_exactly": float((real["winner"] == real["advice"]).mean()),
        "median_ratio": float(real["ratio"].median()),
        "largest_ratio": float(real["ratio"].max()),
        "share_of_the_whole": float(real["trainings"].sum() / real["all_trainings"].sum()),
        "share_median": float(real["share"].median()),
        "share_max": float(real["share"].max()),
        "by_objective": {str(k): [float(g["good"].mean()), len(g)] for k, g in real.groupby("objective")},
        "by_task": {str(k): [float(g["good"].mean()), len(g)] for k, g in real.groupby("task")},
        "mean_sure": float(real["sure"].mean()),
        "right_by_sure": {str(k): [float(g["sure"].mean()), float(g["good"].mean()), len(g)] for k, g in sure},
        "mean_cost_in_the_interval": float(
            ((real["advice_cost"] >= real["low"]) & (real["advice_cost"] <= real["high"])).mean()
        ),
        "misses": json.loads(real[~real["good"]][columns].to_json(orient="records")),
    }


def line(row: dict[str, Any]) -> str:
    what = f"{row['name']} {row['task']:>13} {row['graph']:>11} {row['nodes']:3d} {row['objective'][:5]:>5}"
    if not row["reached"]:
        return f"{what} nobody arrived"
    verdict = "good" if row["good"] else "MISS"
    who = f"{row['advice']} for {row['winner']}"
    cost = f"share {row['share']:.3f} of {row['all_trainings']}, {row['seconds']:.0f} of {row['all_seconds']:.0f} s"
    return f"{what} {verdict} {row['ratio']:.2f} sure {row['sure']:.2f} {who} {cost}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=tuple(SEEDS), default="fresh", dest="which")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder for truths, table and summary")
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--only", type=int, nargs="*", help="settings by number")
    parser.add_argument("--seconds", type=float, default=inf, help="after which no further setting is begun")
    parser.add_argument("--truth", action="store_true", help="only the truths")
    parser.add_argument("--again", action="store_true", help="ask for all advice anew")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    end = time.monotonic() + args.seconds
    args.out.mkdir(parents=True, exist_ok=True)
    file, truths = args.out / f"advice-{args.which}.csv", args.out / "truth"
    done = pd.read_csv(file) if file.is_file() and not args.again else pd.DataFrame({"name": []})
    rows = {row["name"]: row for row in done.to_dict("records")}
    chosen = [one for k, one in enumerate(settings(args.which)) if not args.only or k in args.only]
    # The longest first, so that none is alone at the end: many nodes under `time` take most.
    chosen.sort(key=lambda one: -(one.nodes * (3 if one.objective == "time" else 1)))
    left = [one for one in chosen if one.name not in rows]
    with ProcessPoolExecutor(args.jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        waiting = {pool.submit(work, one, truths, args.truth, end): one for one in left}
        for future in as_completed(waiting):
            row = future.result()
            if row is None:
                continue
            print(line(row) if not args.truth else f"{row['setting']['name']} {row['seconds']} s", flush=True)
            if not args.truth:
                rows[row["name"]] = row
                table = pd.DataFrame([rows[name] for name in sorted(rows)])
                table.to_csv(file, index=False, float_format="%.6g")
    if rows and not args.truth:
        found = summary(pd.DataFrame([rows[name] for name in sorted(rows)]), args.which)
        (args.out / f"advice-{args.which}.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        print(json.dumps(found, indent=2))


def work(one: Setting, truths: Path, only_truth: bool, end: float) -> dict[str, Any] | None:
    """A setting's row, or its truth alone; nothing where time is up."""
    if time.monotonic() > end:
        return None
    return truth_of(one, truths) if only_truth else ask(one, truths)


if __name__ == "__main__":
    main()
