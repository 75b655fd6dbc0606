"""What advice is worth to somebody with own data at five sites: small tables and pictures, before and after a change.

    OMP_NUM_THREADS=1 python results/2026-11-18-advice-2/advice_small.py --name after --out results/2026-11-18-advice-2

Five sites with 150 to 1,500 rows of 10 to 18 columns, classes or numbers to predict, alike or not, and scikit-learn's
digits; 300 iterations at most. In each situation advice is asked for without a goal, with a target or with a budget.
Then ten runs of what it advises say whether its intervals hold, and four runs of every candidate to the end, kept in
--cache for the next, what its choice costs against the best. With another checkout on PYTHONPATH and another --name the
same is measured of that one. What is in the table already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

import walktalk as wt

SIZES = (150, 250, 400, 800, 1500)  # rows of each site
SITES = ("lyon", "nice", "paris", "lille", "brest")
STOP, EVERY, RATE = 300, 10, 0.05
FACTORS = (0.3, 1.0, 3.0)  # of that rate: what the advisor begins with
RUNS, TRUTH = 10, 4  # of what is advised, and of every candidate
LATE = 4.0  # times the longest run: so far the advised one is waited for
AXES = {"iterations": "iteration", "time": "time", "bits": "bits"}


@dataclass(frozen=True)
class Kind:
    """A data set as somebody may have one."""

    classes: bool  # else numbers are to be predicted
    columns: int
    skew: float  # how far sites' people differ
    noise: float  # what nobody can predict
    linear: bool = False  # whether the model is


KINDS = {
    "classes alike": Kind(True, 12, 0.0, 0.5),
    "classes skewed": Kind(True, 12, 1.0, 0.5),
    "classes noisy": Kind(True, 18, 0.5, 4.0),
    "numbers alike": Kind(False, 10, 0.0, 0.5),
    "numbers skewed": Kind(False, 10, 0.7, 0.5),
    "numbers linear": Kind(False, 15, 0.5, 1.0, linear=True),
}
DATA = (*KINDS, "digits alike", "digits skewed")
GRAPHS: dict[str, Callable[[], wt.Graph]] = {
    "complete": lambda: wt.graphs.complete(5),
    "cycle": lambda: wt.graphs.cycle(5),
    "star": lambda: wt.graphs.star(5),
}


@dataclass(frozen=True)
class Situation:
    """One question."""

    data: str
    graph: str
    objective: str
    asked: str  # nothing, target or budget
    seed: int

    @property
    def name(self) -> str:
        return f"{self.data} {self.graph} {self.objective} {self.asked} {self.seed}".replace(" ", "-")


def situations(count: int) -> list[Situation]:
    """Every data set with every graph by turns, and with every goal: 36 are each pair of data and goal about once."""
    goals = [(objective, asked) for asked in ("nothing", "target", "budget") for objective in AXES]
    found = []
    for k in range(count):
        objective, asked = goals[(k + k // len(DATA)) % len(goals)]
        found.append(Situation(DATA[k % len(DATA)], list(GRAPHS)[(k + k // 3) % len(GRAPHS)], objective, asked, 40 + k))
    return found


def table(kind: Kind, seed: int) -> dict[str, pd.DataFrame]:
    """Every site's rows."""
    rng = np.random.default_rng(seed)
    plane, bend = rng.normal(size=(2, kind.columns)) / np.sqrt(kind.columns)
    found = {}
    for site, rows in zip(SITES, SIZES, strict=True):
        x = rng.normal(size=(rows, kind.columns)) + kind.skew * rng.normal(size=kind.columns)
        y = 2 * (x @ plane) + (x @ bend) * x[:, 0] + kind.noise * rng.normal(size=rows)
        frame = pd.DataFrame(x.round(4), columns=[f"c{k}" for k in range(kind.columns)])
        found[site] = frame.assign(y=(y > 0).astype(int) if kind.classes else y.round(4))
    return found


@cache
def task_of(data: str, seed: int) -> wt.Task:
    """The task, its model always begun alike."""
    if data.startswith("digits"):
        return wt.tasks.digits(nodes=5, alpha=100.0 if data.endswith("alike") else 0.3, hidden=16, seed=seed)
    kind = KINDS[data]
    outputs = 2 if kind.classes else 1
    torch.manual_seed(seed)
    layers = (nn.Linear(kind.columns, 16), nn.ReLU(), nn.Linear(16, outputs))
    model = nn.Linear(kind.columns, outputs) if kind.linear else nn.Sequential(*layers)
    loss = nn.functional.cross_entropy if kind.classes else nn.functional.mse_loss
    target = "y" if kind.classes else ["y"]
    return wt.tasks.torch(model, loss, table(kind, seed), target=target)


def usual_target(task: wt.Task) -> float:
    """Where a fifth is left of what training on all data at once gains in 300 steps: people know such a number."""
    model = task.initial(0)
    adam = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(300):
        adam.zero_grad()
        loss = task.loss(model(task.inputs), task.targets)
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
    return float(f"{losses[-1] + 0.2 * (losses[0] - losses[-1]):.3g}")


def goal_of(one: Situation, task: wt.Task) -> dict[str, Any]:
    if one.asked == "nothing":
        return {}
    if one.asked == "target":
        return {"target_loss": usual_target(task)}
    size = 32.0 * sum(parameter.numel() for parameter in task.model.parameters())
    return {"budget": {"iterations": 150.0, "time": 60.0, "bits": 150.0 * size}[one.objective]}


def measure(one: Situation, shared: Path) -> dict[str, Any]:
    """The advice, runs of it, and what every candidate would have cost."""
    task, graph, began = task_of(one.data, one.seed), GRAPHS[one.graph](), time.process_time()
    how: dict[str, Any] = {"evaluate": wt.Evaluate(every=EVERY), "seed": one.seed}
    advice = wt.advise(
        task,
        graph,
        objective=one.objective,  # type: ignore[arg-type]
        optimizer=wt.SGD(lr=RATE),
        stop=STOP,
        **goal_of(one, task),
        **how,
    )
    seconds = time.process_time() - began
    known = survey_of(advice)
    budget, target, longest = known.goal.budget, known.target, known.longest
    ends = runs_of(advice, task, graph, how)
    shown = list(AXES) if budget is None else ["loss"]
    inside = {axis: inside_of(advice.predictions[axis], ends[axis]) for axis in shown}
    widths = {axis: advice.predictions[axis].high / max(advice.predictions[axis].low, 1e-300) for axis in shown}
    answer = "loss" if budget is not None else one.objective
    return {
        **asdict(one),
        "advice": advice.best.label,
        "target": None if budget is not None else target,
        "budget": budget,
        "reached": advice.reached,
        "sure": advice.sure,
        "expected": advice.answer.value,
        "low": advice.low,
        "high": advice.high,
        "mean": float(np.mean(ends[answer])),
        "inside": float(np.mean(list(inside.values()))),
        "width": float(np.exp(np.mean(np.log([min(max(width, 1.0), 1e6) for width in widths.values()])))),
        "regret": regret(one, task, graph, advice, ends[answer], longest, shared),
        "trainings": advice.trainings,
        "seconds": seconds,
    }


def survey_of(advice: Any) -> Any:
    """What was known before the pilots; in the commit that is BEFORE it was called the ground."""
    return advice.survey if hasattr(advice, "survey") else advice.ground


def inside_of(said: Any, values: list[float]) -> float:
    return float(np.mean([said.low <= value <= said.high for value in values]))


def runs_of(advice: Any, task: wt.Task, graph: wt.Graph, how: dict[str, Any]) -> dict[str, list[float]]:
    """Where ten runs of the advised stop, on every axis; infinity for those that were waited for in vain."""
    known = survey_of(advice)
    goal = known.goal
    until = goal.budget if goal.budget is not None else LATE * max(known.longest, 0.0)
    target = None if goal.budget is not None else known.target
    stop = stop_at(goal.objective, until, target)
    history = runs(task, [advice.best.protocol], graph, advice.best.lr, stop, RUNS, how)
    last = history.groupby("repetition").last()
    missed = last["train_loss"] > target if target is not None else last["train_loss"] > np.inf
    found = {axis: [float(x) for x in last[column].where(~missed, np.inf)] for axis, column in AXES.items()}
    return found | {"loss": [float(x) for x in last["train_loss"]]}


def runs(
    task: wt.Task,
    protocols: list[Any],
    graph: wt.Graph,
    lr: float,
    stop: wt.Stop,
    repetitions: int,
    how: dict[str, Any],
) -> pd.DataFrame:
    more = {**how, "seed": how["seed"] + 1000}  # none of the advisor's own randomness
    found = wt.compare(task, protocols, graph, optimizer=wt.SGD(lr=lr), stop=stop, repetitions=repetitions, **more)
    return found.history


def stop_at(objective: str, cost: float, target: float | None) -> wt.Stop:
    limit = {"iterations": int(cost)} if objective == "iterations" else {objective: cost}
    return wt.Stop(**limit, target_loss=target)


def regret(
    one: Situation, task: wt.Task, graph: wt.Graph, advice: Any, own: list[float], longest: float, shared: Path
) -> float:
    """What the advised costs, over the best of all candidates, less 1; with a budget, by what is left of the loss."""
    known = survey_of(advice)
    goal = known.goal
    history = truth(one, task, graph, sorted({c.protocol for c in known.candidates}, key=repr), goal, longest, shared)
    column = AXES[one.objective]
    means = []
    for _, part in history.groupby(["algorithm", "lr"]):
        each = [value_of(run, column, goal.budget, known.target) for _, run in part.groupby("repetition")]
        means.append(float(np.mean(each)))
    mine, best = float(np.mean(own)), min(means)
    if goal.budget is None:
        return (mine / best - 1) if np.isfinite(best) else 0.0
    start = float(history["train_loss"].iloc[0])
    return float((mine - best) / (start - best))  # of all that can be gained for the budget


def truth(
    one: Situation, task: wt.Task, graph: wt.Graph, protocols: list[Any], goal: Any, longest: float, shared: Path
) -> pd.DataFrame:
    """Four runs of every candidate to the end, kept for whoever asks the same."""
    file = shared / f"{one.name}.csv"
    if file.is_file():
        return pd.read_csv(file)
    until = goal.budget if goal.budget is not None else longest
    parts = []
    for factor in FACTORS:
        how = {"evaluate": wt.Evaluate(every=EVERY), "seed": one.seed + 5000}
        lr = float(f"{RATE * factor:.3g}")
        history = runs(task, protocols, graph, lr, stop_at(one.objective, until, None), TRUTH, how)
        parts.append(history[["algorithm", "repetition", "iteration", "time", "bits", "train_loss"]].assign(lr=lr))
    found = pd.concat(parts)
    shared.mkdir(parents=True, exist_ok=True)
    found.to_csv(file, index=False, float_format="%.6g")
    return found


def value_of(run: pd.DataFrame, column: str, budget: float | None, target: float) -> float:
    """The loss at the budget, or the cost where the target is first seen."""
    if budget is not None:
        last = float(run["train_loss"].iloc[-1])
        return last if np.isfinite(last) else np.inf
    there = run[run["train_loss"] <= target]
    return float(there[column].iloc[0]) if len(there) else np.inf


def summary(rows: pd.DataFrame, name: str) -> dict[str, Any]:
    target = rows[rows["budget"].isna()]
    finite = rows[np.isfinite(rows["regret"])]
    return {
        "name": f"advice-small-{name}",
        "situations": len(rows),
        "runs_inside": float(rows["inside"].mean()),
        "median_upper_over_lower": float(rows["width"].median()),
        "wider_than_10": float((rows["width"] > 10).mean()),
        "not_reached": float((~rows["reached"].astype(bool)).mean()),
        "words": {str(k): int(v) for k, v in rows["sure"].map(word).value_counts().items()},
        "within_10_percent_of_the_best": float((rows["regret"] <= 0.1).mean()),
        "median_regret": float(rows["regret"].median()),
        "mean_regret_where_finite": float(finite["regret"].mean()),
        "never_there": int((~np.isfinite(rows["regret"])).sum()),
        "by_asked": {
            str(asked): {"inside": float(part["inside"].mean()), "width": float(part["width"].median())}
            for asked, part in rows.groupby("asked")
        },
        "expected_over_mean": float((target["expected"] / target["mean"]).median()),
        "trainings": int(rows["trainings"].sum()),
        "seconds_of_advice_median": float(rows["seconds"].median()),
    }


def word(sure: float) -> str:
    return "high" if sure >= 0.9 else "fair" if sure >= 0.7 else "low"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="after", help="of the table: which code was measured")
    parser.add_argument("--count", type=int, default=36, help="how many situations")
    parser.add_argument("--only", type=int, nargs="*", help="these alone, by number")
    parser.add_argument("--out", type=Path, default=Path("out/advice-small"), help="folder for table and summary")
    parser.add_argument("--cache", type=Path, default=Path("out/advice-small-truth"), help="runs of every candidate")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    file, chosen = args.out / f"{args.name}.csv", situations(args.count)
    rows = pd.read_csv(file).to_dict("records") if file.is_file() else []
    done = {row["seed"] for row in rows}
    for one in chosen if args.only is None else [chosen[k] for k in args.only]:
        if one.seed in done:
            continue
        rows.append(measure(one, args.cache))
        print(line(rows[-1]), file=sys.stderr, flush=True)
        pd.DataFrame(rows).to_csv(file, index=False, float_format="%.5g")
    found = pd.DataFrame(rows)
    text = json.dumps(summary(found, args.name), indent=2)
    (args.out / f"{args.name}.json").write_text(text + "\n")
    print(text)


def line(row: dict[str, Any]) -> str:
    what = f"{row['data']}, {row['graph']}, {row['objective']}, {row['asked']}"
    said = f"{row['expected']:.4g} ({row['low']:.4g} to {row['high']:.4g}), runs {row['mean']:.4g}"
    held = f"{row['inside']:.0%} inside, regret {row['regret']:.0%}"
    return f"{what}: {row['advice']}: {said}, {held}, {row['seconds']:.1f} s"


if __name__ == "__main__":
    main()
