"""How far the loss by which a round of chaos is judged is from its mean by chance alone, where nothing went wrong.

    python results/2026-11-18-chaos/chaos_chance.py --seed 72002 --out results/2026-11-18-chaos/chance.csv

`walktalk chaos` holds the mean loss of a stretch of a run against that of undisturbed runs; a tenth more fails. Here
undisturbed runs are held against each other: the graph and the data of a round, every node in turn as the aggregator,
`--runs` runs each. `long` is a stretch as it is judged now, `short` as it was before; `spread` is the standard
deviation between runs and `highest` the highest run, both over the mean. What an aggregator has mixed has just been
trained on its own data, so both depend on whose these are.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # also runs where nothing is installed

from walktalk.core.seeds import Seed
from walktalk.protocols import MultiWalk
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.runtimes.stacked import Engine
from walktalk.studies.planning import Preparation, build_trainer, prepare
from walktalk.testing.chaos import ChaosPlan

EVERY = 20  # iterations between two measurements, as in a round
STRETCHES = {"short": (3100, 3900), "long": (3400, 4500)}  # iterations that rounds were, and are, judged by
AFTER = {"short after 1400": (1400, 2200), "long after 1400": (1400, 2500)}  # the same of a younger model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=72002, help="of the round")
    parser.add_argument("--runs", type=int, default=16, help="for each aggregator")
    parser.add_argument("--out", type=Path, required=True, help="where the CSV file goes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ready = prepare(ChaosPlan().spec(options.seed), "cpu")
    rows = []
    for node in range(ready.runs[0].setup.graph.nodes):
        rows += by_stretch(ready, node, losses(ready, node, options.runs))
        print(pd.DataFrame(rows[-len(STRETCHES | AFTER) :]).to_string(index=False), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame(rows)
    table.to_csv(options.out, index=False, float_format="%.4f")
    print(table.groupby("stretch")[["spread", "highest"]].agg(["median", "max"]).to_string())


def losses(ready: Preparation, aggregator: int, runs: int) -> np.ndarray:
    """[run, measurement]: of undisturbed runs that differ by their random walks."""
    run, samples = ready.runs[0], sum(len(part) for part in ready.task.parts)
    assert isinstance(run.setup.protocol, MultiWalk)
    setups = [
        replace(
            run.setup,
            protocol=replace(run.setup.protocol, aggregator=aggregator),
            seed=Seed(ready.spec.seed).child("chance", number),
            stop=Stop(iterations=max(last for _, last in STRETCHES.values())),
            evaluate=Evaluate(every=EVERY),
            keep_trace=False,
        )
        for number in range(runs)
    ]
    engine = Engine(build_trainer(ready.spec, ready.task, "cpu", samples=samples), setups, [run.initial] * runs)
    found: list[list[float]] = [[] for _ in setups]
    for measured in engine.advance(1.0).measurements:
        found[measured.run].append(measured.train_loss)
    return np.array(found)


def by_stretch(ready: Preparation, aggregator: int, measured: np.ndarray) -> list[dict[str, object]]:
    """Of every stretch, how much the runs' means differ."""
    rows: list[dict[str, object]] = []
    for name, (first, last) in (STRETCHES | AFTER).items():
        means = measured[:, first // EVERY : last // EVERY].mean(axis=1)
        rows.append(
            {
                "aggregator": aggregator,
                "samples": len(ready.task.parts[aggregator]),
                "neighbours": len(ready.runs[0].setup.graph.neighbours(aggregator)),
                "stretch": name,
                "loss": means.mean(),
                "spread": means.std(ddof=1) / means.mean(),
                "highest": means.max() / means.mean(),
            }
        )
    return rows


if __name__ == "__main__":
    main()
