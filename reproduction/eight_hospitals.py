"""Eight hospitals of very unlike size: how good walks and gossip become beside FedAvg, and how soon.

    OMP_NUM_THREADS=1 python reproduction/eight_hospitals.py --out results/2026-11-19-hospitals

The shares of the data are those of a real consortium: the largest of eight sites has 52 %, the smallest 0.6 %. A local
step takes as long everywhere, so one pass over its own data takes the largest site 9 s, most others 1 s. The data are
scikit-learn's digits, the model a small network. What a site sees differs too: its shares of the classes are drawn from
Dirichlet(1). Every seed has a split of its own into test samples and sites, besides everything else that is random.

Each algorithm runs at its best learning rate, by the accuracy at the end on two seeds that are not counted; then ten
others are. `rates.csv` has what was tried, `runs.csv` a line for each run: accuracy at the end, the seconds of virtual
time until 93 % was measured first, and how often the largest and the smallest site trained. It prints the table.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import walktalk as wt

PATIENTS = (17_834, 6_133, 3_582, 1_913, 1_912, 1_778, 1_120, 190)  # of the consortium
STEP = 0.2  # seconds of a local step
TEST, ALPHA, TARGET, BATCH = 360, 1.0, 0.93, 16
SECONDS, EVERY = 900.0, 2.0  # of virtual time: some 100 passes of the largest site over its data
RATES = (0.025, 0.05, 0.1, 0.2)
TRIED, COUNTED = (100, 101), tuple(range(10))


@dataclass(frozen=True)
class Setting:
    """How much a site trains when it is its turn, and what it counts."""

    words: str
    local_steps: int | dict[str, float]
    weights: str


BY_DATA = Setting("one pass over its data", {"epochs": 1.0}, "published")  # FedAvg's server weighs by samples then
ALIKE = Setting("5 steps, sites alike", 5, "sites")
LONGER = Setting("5 steps, by samples", 5, "samples")
WALK, WALKS, GOSSIP = {"name": "multi_walk", "walks": 1}, {"name": "multi_walk", "walks": 3}, {"name": "async_gossip"}


@dataclass(frozen=True)
class Contender:
    """An algorithm in one of the settings: a row of the table."""

    algorithm: dict[str, Any]
    called: str
    setting: Setting

    @property
    def name(self) -> str:
        return f"{self.called}, {self.setting.words}"


CONTENDERS = (
    Contender({"name": "fedavg"}, "FedAvg", BY_DATA),
    *(
        Contender(algorithm, called, setting)
        for setting in (BY_DATA, ALIKE, LONGER)
        for algorithm, called in ((WALK, "1 walk"), (WALKS, "3 walks"), (GOSSIP, "gossip"))
    ),
)


class RunDone(NamedTuple):
    """What came out of one run."""

    contender: str
    rate: float
    seed: int
    accuracy: float  # in the end
    seconds: float  # until the target; infinite where it was not reached
    largest: int  # trainings of the largest site
    smallest: int


def hospitals(seed: int) -> wt.Task:
    """The task, dealt out anew: test samples by chance, then the smallest site first, by shares of its own."""
    rng = np.random.default_rng(seed)
    inputs, targets = load_digits(return_X_y=True)
    inputs, targets = (inputs / 16).astype(np.float32), targets.astype(np.int64)
    order = rng.permutation(len(targets))
    test, left = order[:TEST], order[TEST:]
    sizes = [max(1, round(len(left) * count / sum(PATIENTS))) for count in PATIENTS]
    sites: list[tuple[np.ndarray, np.ndarray]] = []
    for size in reversed(sizes[1:]):
        shares = rng.dirichlet(np.full(10, ALPHA))[targets[left]] + 1e-9
        taken = rng.choice(left, size, replace=False, p=shares / shares.sum())
        left = np.setdiff1d(left, taken)
        sites.insert(0, (inputs[taken], targets[taken]))
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    parts = [(inputs[left], targets[left]), *sites]
    return wt.tasks.torch(model, nn.functional.cross_entropy, parts, test=(inputs[test], targets[test]))


def run(task: wt.Task, seed: int, chosen: Sequence[tuple[Contender, float]]) -> Iterator[RunDone]:
    """Run contenders that share a setting, each with its rate, side by side."""
    setting = chosen[0][0].setting
    of_each = [max(1, round(len(part) / BATCH)) for part in task.parts]
    steps = setting.local_steps if isinstance(setting.local_steps, int) else fmean(of_each)
    entries = [{**one.algorithm, "lr": rate, "label": f"{place}"} for place, (one, rate) in enumerate(chosen)]
    compared = wt.compare(
        task,
        entries,
        wt.graphs.complete(len(PATIENTS)),
        optimizer=wt.SGD(lr=0.1, momentum=0.9),
        schedule="cosine",
        timing=wt.NetworkTiming(compute=STEP * steps),
        stop=wt.Stop(time=SECONDS),
        evaluate=wt.Evaluate(every=None, seconds=EVERY),
        batch_size=BATCH,
        local_steps=setting.local_steps,
        objective=setting.weights,
        seed=seed,
        progress=False,
        workers=1,
    )
    for place, (one, rate) in enumerate(chosen):
        history = compared.history[compared.history["algorithm"].astype(str) == str(place)]
        there = history[history["test_accuracy"] >= TARGET]
        trace = compared.runs[place].trace
        trained = trace.loc[trace["event"] == "trained", "node"].tolist()
        yield RunDone(
            one.name,
            rate,
            seed,
            float(history["test_accuracy"].iloc[-1]),
            float(there["time"].iloc[0]) if len(there) else math.inf,
            trained.count(0),
            trained.count(len(PATIENTS) - 1),
        )


def together(wanted: Sequence[tuple[Contender, float]]) -> Iterator[list[tuple[Contender, float]]]:
    """Those that can run side by side: in the same setting."""
    for setting in (BY_DATA, ALIKE, LONGER):
        if found := [one for one in wanted if one[0].setting == setting]:
            yield found


def run_all(seeds: Sequence[int], wanted: Sequence[tuple[Contender, float]]) -> list[RunDone]:
    """Run everything that is wanted on every seed."""
    done: list[RunDone] = []
    for seed in seeds:
        task = hospitals(seed)
        for chosen in together(wanted):
            done += run(task, seed, chosen)
        print(f"seed {seed}", flush=True)
    return done


def best_rates(tried: Sequence[RunDone]) -> dict[str, float]:
    """Of each contender the rate with the highest mean accuracy at the end."""
    means: dict[str, dict[float, float]] = {}
    for one in CONTENDERS:
        of_rate = {
            rate: [run.accuracy for run in tried if (run.contender, run.rate) == (one.name, rate)] for rate in RATES
        }
        means[one.name] = {rate: fmean(values) for rate, values in of_rate.items()}
    return {name: max(of_rate, key=lambda rate: of_rate[rate]) for name, of_rate in means.items()}


def summary(done: Sequence[RunDone]) -> str:
    """The table, as Markdown: differences to FedAvg are of the same seeds."""
    first = {run.seed: run.accuracy for run in done if run.contender == CONTENDERS[0].name}
    lines = [
        "| | rate | accuracy at the end | beside FedAvg, points | seconds to 93 % | trainings, largest and smallest |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in CONTENDERS:
        runs = [run for run in done if run.contender == one.name]
        apart = [100 * (run.accuracy - first[run.seed]) for run in runs]
        half = 2.262 * stdev(apart) / math.sqrt(len(apart))  # Student's t, 9 degrees of freedom
        reached = [run.seconds for run in runs if math.isfinite(run.seconds)]
        missed = f", {len(runs) - len(reached)} never" if len(reached) < len(runs) else ""
        lines.append(
            f"| {one.name} | {runs[0].rate:g} | {100 * fmean(run.accuracy for run in runs):.2f} % "
            f"| {'' if one is CONTENDERS[0] else f'{fmean(apart):+.2f} ± {half:.2f}'} "
            f"| {f'{fmean(reached):.0f}' if reached else '–'}{missed} "
            f"| {fmean(run.largest for run in runs):.0f} / {fmean(run.smallest for run in runs):.0f} |"
        )
    return "\n".join(lines) + "\n"


def write(path: Path, done: Sequence[RunDone]) -> None:
    """One line for each run."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(RunDone._fields)
        writer.writerows((*run[:3], f"{run.accuracy:.6g}", *run[4:]) for run in done)


def main() -> None:
    """Find rates, run, write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    tried = run_all(TRIED, [(one, rate) for one in CONTENDERS for rate in RATES])
    write(out / "rates.csv", tried)
    rates = best_rates(tried)
    done = run_all(COUNTED, [(one, rates[one.name]) for one in CONTENDERS])
    write(out / "runs.csv", done)
    print(summary(done))


if __name__ == "__main__":
    main()
