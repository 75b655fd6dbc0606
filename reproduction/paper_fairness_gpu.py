"""Does who wins depend on where the optimizer's state lives, and on the learning rate? Image runs on one GPU.

    python reproduction/paper_fairness_gpu.py --data FOLDER --out FOLDER --alphas 1,0.1 --iterations 2500 --budget 240

Settings are those of `walktalk paper run fig5 --scale paper` (Table 5) on cycle and Erdős–Rényi(0.3), R = 1, 4, 15 and
gossip, but for the number of iterations and repetitions. For each α, in two stages, each of them one engine:

1. rates: every algorithm at three learning rates, a quarter as long, with all of the schedule (state fresh at each
   visit); the best of each goes on.
2. main, at full length: the state fresh at each visit, at the nodes, or with the walk, all at the paper's rate; and
   every algorithm at its own best rate, where that is another one. (Gossip's state at the nodes is what `walk` means.)

Runs of an algorithm have the same walks and batches in all of these. Writes `rates.csv`, `fairness.csv` and
`facts.json` after every stage; a stage that would not end within `--budget` real seconds is left out.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from paper_runs import Speed, tell, together, write_facts
from walktalk.learning import Trainer
from walktalk.records import RUN_COLUMNS
from walktalk.records import frame as frame_of
from walktalk.reproduction.paper.figures import CYCLE, ERDOS_RENYI, settings
from walktalk.studies import RunRecord, make_spec, planned_runs, prepare, spec_mapping

NETWORKS = {"cycle": CYCLE, "erdos_renyi": ERDOS_RENYI}
ALGORITHMS = [
    {"name": "multi_walk", "walks": 1},
    {"name": "multi_walk", "walks": 4},
    {"name": "multi_walk", "walks": 15},
    {"name": "async_gossip", "mixing": "pairwise"},
]
FACTORS = (0.3, 1.0, 3.0)  # of the paper's rate
SHARE = 0.25  # of a run's length that a trial takes
STATES = ("visit", "node", "walk")
STEPS_A_SECOND = 3000.0  # to judge whether a stage fits, before any was timed

Best = dict[tuple[str, str], float]  # (topology, algorithm) -> factor


def main() -> None:
    options = arguments()
    began, speed, out = time.perf_counter(), Speed(), Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    rates, tables, skipped = [], [], []
    for alpha in (float(text) for text in options.alphas.split(",")):
        spec = study(options, alpha, "cycle", "visit", ALGORITHMS, 1.0)
        trainer = prepare(make_spec(spec), options.device).trainer
        found, best = stage_rates(trainer, options, alpha, speed)
        rates.append(found)
        pd.concat(rates).to_csv(out / "rates.csv", index=False)
        if fits(options, speed, began):
            tables.append(stage_main(trainer, options, alpha, best, speed))
            pd.concat(tables).to_csv(out / "fairness.csv", index=False)
        else:
            skipped.append(alpha)
            print(f"no time for the main stage of α = {alpha:g}", flush=True)
        facts = {"settings": vars(options), "skipped": skipped, "spec": spec_mapping(make_spec(spec)), **speed.facts()}
        write_facts(out / "facts.json", facts)


def fits(options: argparse.Namespace, speed: Speed, began: float) -> bool:
    """Whether a main stage will end in time."""
    pace = speed.model_steps / speed.seconds if speed.seconds else STEPS_A_SECOND
    runs = len(NETWORKS) * (len(STATES) + 1) * len(ALGORITHMS)
    seconds = runs * options.repetitions * options.iterations * 5 / pace
    return time.perf_counter() - began + seconds <= options.budget


def stage_rates(trainer: Trainer, options: argparse.Namespace, alpha: float, speed: Speed) -> tuple[pd.DataFrame, Best]:
    """Every algorithm at every rate, shortened; what was found, and the best factor of each."""
    studies = {}
    for topology in NETWORKS:
        for factor in FACTORS:
            spec = study(options, alpha, topology, "visit", at_rates(dict.fromkeys(titles(), factor)), SHARE)
            studies[f"{topology}@{factor:g}"] = planned_runs(make_spec(spec), trainer)
    rows = []
    for name, records in together(trainer, studies, speed, f"rates, α = {alpha:g}").items():
        topology, factor = name.split("@")
        for record in records:
            last = record.history[-1]
            rows.append(
                (
                    alpha,
                    topology,
                    record.label,
                    float(factor),
                    record.repetition,
                    last.iteration,
                    last.train_loss,
                    last.test_accuracy,
                )
            )
    columns = ["alpha", "topology", "algorithm", "factor", "repetition", "iteration", "train_loss", "test_accuracy"]
    found = pd.DataFrame(rows, columns=columns)
    means = found.groupby(["topology", "algorithm", "factor"])["train_loss"].mean()
    best: Best = {}
    for topology in NETWORKS:
        for title in titles():
            losses = {factor: float(means[topology, title, factor]) for factor in FACTORS}
            best[topology, title] = min(FACTORS, key=lambda f: losses[f] if math.isfinite(losses[f]) else math.inf)
    print(found.to_string(index=False), flush=True)
    return found, best


def stage_main(trainer: Trainer, options: argparse.Namespace, alpha: float, best: Best, speed: Speed) -> pd.DataFrame:
    """The three places of the state at the paper's rate, and everyone's best rate."""
    studies = {}
    for topology in NETWORKS:
        for state in STATES:
            algorithms = [a for a in ALGORITHMS if state != "walk" or a["name"] == "multi_walk"]
            spec = study(options, alpha, topology, state, algorithms, 1.0)
            studies[f"{topology}@{state}"] = planned_runs(make_spec(spec), trainer)
        own = {title: best[topology, title] for title in titles() if best[topology, title] != 1.0}
        if own:
            spec = study(options, alpha, topology, "visit", at_rates(own), 1.0)
            studies[f"{topology}@tuned"] = planned_runs(make_spec(spec), trainer)
    tables = []
    for name, records in together(trainer, studies, speed, f"main, α = {alpha:g}").items():
        topology, variant = name.split("@")
        tell(f"α = {alpha:g} {name}", records)
        tables.append(table(alpha, topology, variant, best, records))
    return pd.concat(tables)


def table(alpha: float, topology: str, variant: str, best: Best, records: Sequence[RunRecord]) -> pd.DataFrame:
    """Histories with what they are of in front."""
    rows = [row for record in records for row in record.history]
    frame = frame_of(rows, RUN_COLUMNS)
    factors = [best[topology, label] if variant == "tuned" else 1.0 for label in frame["algorithm"]]
    for place, (name, values) in enumerate(
        {"alpha": alpha, "topology": topology, "variant": variant, "lr_factor": factors}.items()
    ):
        frame.insert(place, name, values)
    return frame


# -- settings ---------------------------------------------------------------------------------------------------------


def titles() -> list[str]:
    return [a.title for a in make_spec({"algorithms": ALGORITHMS}).algorithms]


def at_rates(factors: dict[str, float]) -> list[dict[str, Any]]:
    """These algorithms at so many times the paper's rate, under their usual names, so that their draws are the same."""
    base = settings("image", "paper")["optimizer"]["lr"]
    return [
        {**algorithm, "label": title, "lr": base * factors[title]}
        for algorithm, title in zip(ALGORITHMS, titles(), strict=True)
        if title in factors
    ]


def study(
    options: argparse.Namespace, alpha: float, topology: str, state: str, algorithms: list[dict[str, Any]], share: float
) -> dict[str, Any]:
    """The preset with what is asked for here."""
    base = settings("image", "smoke" if options.digits else "paper")
    iterations = round(share * options.iterations)
    task = {**base["task"], "alpha": alpha, **({"folder": options.data} if options.data else {})}
    return {
        **base,
        "network": dict(NETWORKS[topology]),
        "repetitions": options.repetitions,
        "task": task,
        "training": {**base["training"], "optimizer_state": state},
        "algorithms": algorithms,
        "stop": {"iterations": iterations},
        "evaluate": {"every": options.every if share == 1.0 else iterations, "samples": 2500},
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the official CIFAR-10 binary files, if not in the usual place")
    parser.add_argument("--digits", action="store_true", help="digits in place of CIFAR-10: a try on a CPU")
    parser.add_argument("--out", required=True)
    parser.add_argument("--alphas", default="1,0.1")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=2500)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--budget", type=float, default=math.inf, help="real seconds after which nothing is begun")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


if __name__ == "__main__":
    main()
