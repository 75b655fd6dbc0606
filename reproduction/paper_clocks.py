"""The same runs by other clocks: how long Figures 4 to 8 would have taken with slower trainings and other networks.

    python reproduction/paper_clocks.py results/2026-11-15-paper-h200 --out results/2026-11-16-clocks

Nothing is trained. When things happen never depends on the numbers in a model, so the course of every run is simulated
again with another training time or network, and the losses by iteration that were measured are read off by the new
clock. With one walk that is exact. With several, and with gossip, the order in which models meet differs from that of
the runs, which is a matter of chance there, too: what is taken over is the loss after so many iterations. Where a run
ends by time, as in Figure 8, its learning rate fell by the clock of then.

Writes `clocks.csv` (a line for each setting, clock, algorithm and repetition: seconds to the loss of the setting, by
the aggregated model and by the mean of the walks' or nodes' models) and `clocks.md`, gossip's seconds over those of
each number of walks: above 1 walks are ahead.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from walktalk.records import read_history
from walktalk.reproduction.paper.figures import settings
from walktalk.runtimes.semantics import Evaluate
from walktalk.runtimes.simulator import Simulation
from walktalk.studies import StudySpec, make_spec
from walktalk.studies.planning import AlgorithmPlan, Conditions, build_foundation, build_rate, build_stop, build_timing

TARGETS = {"10": 1.1, "1": 1.2, "0.1": 1.8}  # as in DETAILS.md
LANGUAGE_TARGETS = (1.0, 0.7)
LOOKS = 100  # at a clock on the way; it goes evenly in between
GRAPHS = ("cycle", "complete", "erdos_renyi")
MEASURES = {"aggregated": "train_loss", "mean": "mean_train_loss"}  # which model: column of the histories
COLUMNS = (
    *("figure", "setting", "clock", "algorithm", "repetition", "model", "loss"),
    *("iteration", "seconds", "as_measured"),
)
IMAGE_CLOCKS: dict[str, dict[str, Any]] = {
    "0.05 s, sites": {"compute": 0.05},
    "0.25 s, sites": {"compute": 0.25},
    "0.5 s, sites": {"compute": 0.5},
    "0.05 s, 1 Gbit/s a node": {"compute": 0.05, "node_bandwidth": 1e9},
    "0.05 s, 100 Mbit/s a node": {"compute": 0.05, "node_bandwidth": 1e8},
    "0.05 s, 30 Mbit/s a node": {"compute": 0.05, "node_bandwidth": 3e7},
    "0.05 s, 10 Mbit/s a node": {"compute": 0.05, "node_bandwidth": 1e7},
    "0.25 s, 10 Mbit/s a node": {"compute": 0.25, "node_bandwidth": 1e7},
    "0.5 s, 10 Mbit/s a node": {"compute": 0.5, "node_bandwidth": 1e7},
    "0.5 s, 1 Mbit/s a node": {"compute": 0.5, "node_bandwidth": 1e6},
}
LANGUAGE_CLOCKS: dict[str, dict[str, Any]] = {
    f"{gigabits:g} Gbit/s": {"bandwidth": 1e9 * gigabits, "node_bandwidth": 1e9 * gigabits}
    for gigabits in (1, 10, 25, 40, 100)
}


@dataclass(frozen=True)
class Runs:
    """The runs of one CSV file, and the study that they are of."""

    figure: str
    setting: str
    history: Any  # pandas frame
    content: dict[str, Any]  # of the specification
    targets: tuple[float, ...]


def found(folder: Path) -> Iterator[Runs]:
    """What is there of Figures 4 to 7, and Figure 8."""
    for alpha, target in TARGETS.items():
        for graph in GRAPHS:
            file = folder / f"alpha-{alpha}" / f"{graph}.csv"
            if file.exists():
                history = read_history(file)
                yield Runs("4 to 7", f"α = {alpha}, {graph}", history, image(graph, history), (target,))
    file = folder / "fig8" / "fig8.csv"
    if file.exists():
        history = read_history(file)
        yield Runs("8", "erdos_renyi", history, language(history), LANGUAGE_TARGETS)


def image(graph: str, history: Any) -> dict[str, Any]:
    base = settings("image", "paper")
    network = {key: value for key, value in base["network"].items() if graph == "erdos_renyi" or key != "p"}
    whole = {"repetitions": int(history.repetition.max()) + 1, "stop": {"iterations": int(history.iteration.max())}}
    return {**base, **whole, "network": {**network, "topology": graph}, "algorithms": algorithms(history)}


def language(history: Any) -> dict[str, Any]:
    """Runs end by iterations here: those that each made in its time."""
    base = settings("language", "paper")
    whole = {"repetitions": int(history.repetition.max()) + 1, "stop": {"iterations": int(history.iteration.max())}}
    return {**base, **whole, "algorithms": algorithms(history)}


def algorithms(history: Any) -> list[dict[str, Any]]:
    walks = [int(label.split("-")[1]) for label in dict.fromkeys(history.algorithm) if label.startswith("multi_walk")]
    return [{"name": "multi_walk", "walks": sorted(walks)}, {"name": "async_gossip", "mixing": "pairwise"}]


def model_bytes(history: Any) -> int:
    """Of one model: gossip in pairs sends two for each iteration, but for those that are still under way."""
    last = history[history.algorithm.str.startswith("async_gossip")].iloc[-1]
    return round(float(last.model_bits) / 16 / float(last.iteration))


class Clock:
    """Virtual time by iteration, of one run."""

    def __init__(self, spec: StudySpec, plan: AlgorithmPlan, repetition: int, size: int, iterations: int) -> None:
        base = build_foundation(spec)
        stop = replace(build_stop(spec), iterations=iterations)
        conditions = Conditions(
            base.graph,
            size,
            0,
            stop,
            build_timing(spec),
            Evaluate(every=iterations),
            build_rate(spec),
            spec.training.local_steps,
        )
        setup = conditions.setup(plan, base.root, repetition)
        simulation = Simulation(replace(setup, keep_trace=False, keep_schedule=False))
        self.iterations, self.seconds = [0.0], [0.0]
        for look in range(1, LOOKS + 1):
            simulation.advance(look / LOOKS)
            self.iterations.append(float(simulation.iteration))
            self.seconds.append(float(simulation.agenda.now))

    def at(self, iteration: float) -> float:
        return float(np.interp(iteration, self.iterations, self.seconds))


def lines(runs: Runs, clocks: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Seconds to every loss, by every clock."""
    size = model_bytes(runs.history)
    for name, timing in clocks.items():
        spec = make_spec({**runs.content, "timing": {**runs.content["timing"], **timing}})
        for plan in build_foundation(spec).algorithms:
            of = runs.history[runs.history.algorithm == plan.label]
            for repetition, run in of.groupby("repetition"):
                clock = Clock(spec, plan, int(repetition), size, int(run.iteration.max()))
                for target, (model, column) in product(runs.targets, MEASURES.items()):
                    below = run[(run.iteration > 0) & (run[column] <= target)]
                    row = below.iloc[0] if len(below) else None
                    yield {
                        "figure": runs.figure,
                        "setting": runs.setting,
                        "clock": name,
                        "algorithm": plan.label,
                        "repetition": int(repetition),
                        "model": model,
                        "loss": target,
                        "iteration": math.nan if row is None else int(row.iteration),
                        "seconds": math.nan if row is None else clock.at(float(row.iteration)),
                        "as_measured": math.nan if row is None else float(row.time),
                    }


def all_lines(runs: Runs) -> list[dict[str, Any]]:
    return list(lines(runs, LANGUAGE_CLOCKS if runs.figure == "8" else IMAGE_CLOCKS))


def page(made: Sequence[Mapping[str, Any]]) -> str:
    """Gossip's seconds over the walks', by setting and clock: aggregated model, and, in italics, mean of the walks."""
    text: list[str] = []
    for figure in dict.fromkeys(line["figure"] for line in made):
        mine = [line for line in made if line["figure"] == figure]
        labels = list(dict.fromkeys(line["algorithm"] for line in mine))
        walks, gossip = labels[:-1], labels[-1]
        head = [*(label.replace("multi_walk-", "R = ") for label in walks), "gossip, s"]
        text += [f"## Figure{'s' if ' ' in figure else ''} {figure}", ""]
        text += [f"| setting | to loss | clock | {' | '.join(head)} |", "| --- " * (3 + len(head)) + "|"]
        keys = dict.fromkeys((line["setting"], line["loss"], line["clock"]) for line in mine)
        for setting, loss, clock in keys:
            these = [line for line in mine if (line["setting"], line["loss"], line["clock"]) == (setting, loss, clock)]
            times = {
                (label, model): [x["seconds"] for x in these if (x["algorithm"], x["model"]) == (label, model)]
                for label, model in product(labels, MEASURES)
            }
            own = times[gossip, "mean"]
            cells = [" *".join(over(own, times[label, model]) for model in MEASURES) + "*" for label in walks]
            text.append(f"| {setting} | {loss:g} | {clock} | {' | '.join([*cells, said(own)])} |")
        text.append("")
    return "\n".join(text)


def over(gossip: Sequence[float], walk: Sequence[float]) -> str:
    """Means over repetitions; – where not all come so far."""
    if any(map(math.isnan, (*gossip, *walk))):
        return "–"
    return f"{fmean(gossip) / fmean(walk):.2f}"


def said(values: Sequence[float]) -> str:
    if any(map(math.isnan, values)):
        return "–"
    return f"{fmean(values):.0f}" + (f" ± {stdev(values):.0f}" if len(values) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="results of paper_gpu.py and paper_language_gpu.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    made: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.processes) as pool:
        for these in pool.map(all_lines, found(options.folder)):
            made += these
            print(these[-1]["figure"], these[-1]["setting"], flush=True)
    with (options.out / "clocks.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in line.items()} for line in made)
    (options.out / "clocks.md").write_text(page(made))


if __name__ == "__main__":
    main()
