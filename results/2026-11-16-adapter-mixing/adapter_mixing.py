"""Which mean of low-rank adapters is best: of the factors, of B with A frozen, or of the product, cut to the rank.

    python results/2026-11-16-adapter-mixing/adapter_mixing.py --out results/2026-11-16-adapter-mixing

A small transformer (two blocks, 32 wide) learns scikit-learn's digits, which it reads line by line. Then the images
are turned over, so that its lines are their columns, and every node has its own share of the classes (Dirichlet 0.3).
From there on adapters alone train: four walks, and gossip, among eight nodes, each at the best of several learning
rates (mean loss over all seeds), every seed with a base and a split of its own. Writes `mixing.csv`, one line a run,
and `README.md`.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import walktalk as wt

sys.path.append(str(Path(__file__).resolve().parents[1] / "2026-11-16-adapters-peers"))

from digit_reader import digits, learned_reader

WIDE, NODES = 32, 8
BEFORE = 200  # steps on upright images
MIXINGS = ("factors", "freeze-a", "product")
ALGORITHMS = {"R = 4": wt.MultiWalk(walks=4), "gossip": wt.AsyncGossip()}
COLUMNS = ("rank", "mixing", "algorithm", "lr", "seed", "start", "loss", "mean_loss", "megabytes", "seconds")


def make(seed: int) -> tuple[nn.Module, Any]:
    """A model that has learned upright images, and images that lie on their sides, split over the nodes."""
    model, (images, labels) = learned_reader(WIDE, seed, BEFORE), digits()
    return model, wt.split((images.transpose(1, 2).contiguous(), labels), NODES, "dirichlet", alpha=0.3, seed=seed)


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    lines: list[dict[str, Any]] = []
    began = time.perf_counter()
    for seed in range(options.seeds):
        model, parts = make(seed)
        for rank in map(int, options.ranks.split(",")):
            for mixing in MIXINGS:
                torch.manual_seed(seed)  # all begin with the same A
                adapted = wt.lora(model, rank, targets=["q_proj", "v_proj", "up", "down"], mixing=mixing)  # type: ignore[arg-type]
                task = wt.tasks.torch(adapted, functional.cross_entropy, parts)
                for lr in map(float, options.rates.split(",")):
                    lines += runs(task, rank, mixing, lr, seed, options)
                    write(Path(options.out), lines, options)
        print(f"seed {seed}: {time.perf_counter() - began:.0f} s", flush=True)


def runs(
    task: wt.Task, rank: int, mixing: str, lr: float, seed: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the aggregator's copy is older than the walks is known
        result = wt.compare(
            task,
            list(ALGORITHMS.values()),
            wt.graphs.erdos_renyi(NODES, p=0.5, seed=1),
            repetitions=options.repetitions,
            optimizer=wt.Adam(lr=lr),
            optimizer_state="node",
            batch_size=16,
            local_steps=4,
            stop=options.iterations,
            evaluate=options.iterations // 4,
            seed=seed,
            progress=False,
        )
    seconds = time.perf_counter() - began
    found = []
    for run in result.runs:
        history = run.history
        name = next(name for name, protocol in ALGORITHMS.items() if protocol.label == run.record.label)
        found.append(
            {
                "rank": rank,
                "mixing": mixing,
                "algorithm": name,
                "lr": lr,
                "seed": f"{seed}.{run.record.repetition}",
                "start": float(history["train_loss"].iloc[0]),
                "loss": float(history["train_loss"].iloc[-1]),
                "mean_loss": float(history["mean_train_loss"].iloc[-1]),
                "megabytes": float(history["bits"].iloc[-1]) / 8e6,
                "seconds": seconds / len(result.runs),
            }
        )
    return found


def write(out: Path, lines: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (out / "mixing.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(lines)
    (out / "README.md").write_text(page(lines, options))


def page(lines: Sequence[dict[str, Any]], options: argparse.Namespace) -> str:
    """The table: for each rank, mixing and algorithm the loss at the best rate, and what it is to plain factors."""
    seeds = len({line["seed"] for line in lines})
    text = [
        "# Which mean of low-rank adapters",
        "",
        "    python results/2026-11-16-adapter-mixing/adapter_mixing.py "
        f"--seeds {options.seeds} --repetitions {options.repetitions} --iterations {options.iterations} "
        f"--ranks {options.ranks} --rates {options.rates}",
        "",
        f"{seeds} seeds, {NODES} nodes, Dirichlet 0.3, {options.iterations} iterations of 4 Adam steps with batch 16. "
        "Loss of the mean of the models (± standard error over the seeds) at the best of the learning rates; the "
        "difference to `factors` is of the same seeds, with its standard error. One CPU thread; "
        "`adapter_mixing.py` says what is learned.",
        "",
        "| rank | algorithm | mixing | best rate | loss | against `factors` | MB sent |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for rank in sorted({line["rank"] for line in lines}):
        for algorithm in ALGORITHMS:
            best = {mixing: best_rate(lines, rank, algorithm, mixing) for mixing in MIXINGS}
            for mixing in MIXINGS:
                lr, found = best[mixing]
                base = best["factors"][1]
                if not found:
                    continue
                values = np.array([line["mean_loss"] for line in found.values()])
                both = [(found[seed]["mean_loss"], base[seed]["mean_loss"]) for seed in found if seed in base]
                change = np.array([one - other for one, other in both])
                against = "–" if mixing == "factors" else f"{change.mean():+.3f} ± {error(change):.3f}"
                sent = np.mean([line["megabytes"] for line in found.values()])
                mean = f"{values.mean():.3f} ± {error(values):.3f}"
                text.append(f"| {rank} | {algorithm} | {mixing} | {lr:g} | {mean} | {against} | {sent:.1f} |")
    return "\n".join(text) + "\n"


def best_rate(
    lines: Sequence[dict[str, Any]], rank: int, algorithm: str, mixing: str
) -> tuple[float, dict[str, dict[str, Any]]]:
    mine = [line for line in lines if (line["rank"], line["algorithm"], line["mixing"]) == (rank, algorithm, mixing)]
    by_rate: dict[float, dict[str, dict[str, Any]]] = {}
    for line in mine:
        by_rate.setdefault(line["lr"], {})[line["seed"]] = line
    most = max((len(found) for found in by_rate.values()), default=0)
    whole = {lr: found for lr, found in by_rate.items() if len(found) == most}
    if not whole:
        return 0.0, {}
    lr = min(whole, key=lambda rate: float(np.mean([line["mean_loss"] for line in whole[rate].values()])))
    return lr, whole[lr]


def error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="out/adapter-mixing")
    parser.add_argument("--seeds", type=int, default=5, help="bases, with a split each")
    parser.add_argument("--repetitions", type=int, default=1, help="of every run")
    parser.add_argument("--iterations", type=int, default=120)
    parser.add_argument("--ranks", default="4")
    parser.add_argument("--rates", default="0.01,0.03")
    return parser.parse_args()


if __name__ == "__main__":
    main()
