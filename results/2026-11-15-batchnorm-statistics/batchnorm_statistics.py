"""What becomes of BatchNorm's statistics: averaged, as walktalk does, or added up like weights.

    python results/2026-11-15-batchnorm-statistics/batchnorm_statistics.py --out results/2026-11-15-batchnorm-statistics

A perceptron with two BatchNorm layers on digits, 20 nodes, Erdős–Rényi(0.3), 1,500 iterations, the same seeds both
ways. Writes `ends.csv`: the final training loss of every run, nan where a variance fell below zero.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch
from torch import nn

from walktalk import graphs
from walktalk.core.seeds import Seed
from walktalk.learning import OptimizerSpec, Trainer, tasks
from walktalk.protocols import AsyncGossip, MultiWalk, Protocol
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.simulator import NetworkTiming, RunSetup
from walktalk.runtimes.stacked import Engine

ITERATIONS = 1500
PROTOCOLS: tuple[Protocol, ...] = (MultiWalk(2), MultiWalk(4), MultiWalk(15), AsyncGossip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for alpha in (10.0, 1.0, 0.1) for row in ends(alpha, options.seeds)]
    table = pd.DataFrame(rows, columns=["alpha", "algorithm", "statistics", "seed", "train_loss"])
    options.out.mkdir(parents=True, exist_ok=True)
    table.to_csv(options.out / "ends.csv", index=False, float_format="%.6g")
    losses = table.groupby(["alpha", "algorithm", "statistics"], sort=False)["train_loss"]
    finite = losses.count()
    print(pd.DataFrame({"mean": losses.mean(), "std": losses.std(), "finite": finite, "of": losses.size()}).to_string())


def ends(alpha: float, seeds: int) -> list[tuple[float, str, str, int, float]]:
    """The end of every run at one α."""
    model = nn.Sequential(
        nn.Linear(64, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
    optimizer = OptimizerSpec("sgd", 0.05, momentum=0.9, nesterov=True)
    trainer = Trainer(replace(tasks.digits(nodes=20, alpha=alpha), model=model), optimizer=optimizer)
    graph, timing = graphs.erdos_renyi(20, p=0.3, seed=1), NetworkTiming(compute=0.05, spread=0.3)
    found = []
    for protocol in PROTOCOLS:
        for averaged in (True, False):
            setups = [
                RunSetup(
                    protocol,
                    graph,
                    stop=Stop(iterations=ITERATIONS),
                    evaluate=Evaluate(every=ITERATIONS),
                    lr=0.05,
                    seed=Seed(seed),
                    timing=timing,
                    model_bytes=trainer.payload_bytes,
                )
                for seed in range(seeds)
            ]
            engine = Engine(trainer, setups, [trainer.initial_row(seed) for seed in range(seeds)])
            for simulation in engine.simulations:
                simulation.notebook.statistics = averaged
            for one in engine.advance(1.0).measurements:
                if one.op.iteration >= ITERATIONS:
                    way = "averaged" if averaged else "added up"
                    found.append((alpha, protocol.label, way, one.run, one.train_loss))
    return found


if __name__ == "__main__":
    main()
