"""What two bad nodes of twenty do, and what a screen against them buys and costs.

    python benchmarks/bad_nodes.py --out results/2026-11-16-bad-nodes-witnesses

Digits, Dirichlet(1), 20 nodes, Erdős–Rényi(0.3), weight decay 0.01 so that losses come to rest, 6,000 iterations; the
same seeds with no attack, and with nodes 3 and 7 that turn the signs of what they send, blow it up tenfold, or put
noise on it that is as long as the model. Writes `ends.csv` (mean of the last five evaluations of every run) and
`table.md`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd

from walktalk.studies import StudySpec, make_spec, run_study

BAD = [3, 7]
ATTACKS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "flip": [{"kind": "corrupt", "at": 0, "nodes": BAD, "how": "flip"}],
    "scale(10)": [{"kind": "corrupt", "at": 0, "nodes": BAD, "how": "scale", "factor": 10.0}],
    "noise(1)": [{"kind": "corrupt", "at": 0, "nodes": BAD, "how": "noise", "factor": 1.0}],
}
ALGORITHMS: list[dict[str, Any]] = [
    {"name": "async_gossip", "label": "gossip in pairs"},
    {"name": "async_gossip", "screen": "clip(0.3)", "label": "gossip in pairs, clip(0.3)"},
    {"name": "async_gossip", "screen": "refuse(0.7)", "label": "gossip in pairs, refuse(0.7)"},
    {"name": "sync_gossip", "label": "gossip in rounds"},
    {"name": "sync_gossip", "screen": "trim(2)", "label": "gossip in rounds, trim(2)"},
    {"name": "sync_gossip", "screen": "median", "label": "gossip in rounds, median"},
    {"name": "sync_gossip", "screen": "refuse(0.7)", "label": "gossip in rounds, refuse(0.7)"},
    {"name": "multi_walk", "walks": 4, "label": "4 walks"},
    {"name": "multi_walk", "walks": 4, "screen": "clip(0.3)", "label": "4 walks, clip(0.3)"},
    {"name": "multi_walk", "walks": 4, "screen": "refuse(0.7)", "label": "4 walks, refuse(0.7)"},
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--only", default="", help="algorithms whose name has this in it")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = [each for each in ALGORITHMS if options.only in each["label"]]
    table = pd.concat([ends(chosen, name, options.repetitions) for name in options.attacks])
    write(table, options.out, [each["label"] for each in chosen], options.attacks)


def study_of(algorithms: list[dict[str, Any]], **more: Any) -> StudySpec:
    """The study, of these algorithms."""
    return make_spec(
        {
            "name": "bad-nodes",
            "network": {"topology": "erdos_renyi", "nodes": 20, "p": 0.3},
            "task": {"name": "digits", "alpha": 1.0},
            "optimizer": {"weight_decay": 0.01},
            "algorithms": algorithms,
            "stop": {"iterations": 6000},
            "evaluate": {"every": 200},
            **more,
        }
    )


def ends(algorithms: list[dict[str, Any]], attack: str, repetitions: int) -> pd.DataFrame:
    """The losses at which the runs under one attack came to rest."""
    return at_rest(run_study(study_of(algorithms, repetitions=repetitions, faults=ATTACKS[attack])).history, attack)


def at_rest(history: pd.DataFrame, attack: str) -> pd.DataFrame:
    """The mean of the last five evaluations of every run."""
    last = history.sort_values("iteration").groupby(["algorithm", "repetition"]).tail(5)
    means = last.groupby(["algorithm", "repetition"])[["train_loss", "test_accuracy"]].mean().reset_index()
    means.insert(0, "attack", attack)
    return means


def write(table: pd.DataFrame, out: Path, algorithms: list[str], attacks: list[str]) -> None:
    """All runs, and a table of their means; the table is printed, too."""
    table.to_csv(out / "ends.csv", index=False, float_format="%.6g")
    means = table.groupby(["algorithm", "attack"])["train_loss"].mean().unstack().loc[algorithms, attacks]
    head = [f"| algorithm | {' | '.join(means.columns)} |", "| --- " * (len(means.columns) + 1) + "|"]
    rows = [f"| {name} | {' | '.join(f'{loss:.3g}' for loss in row)} |" for name, row in means.iterrows()]
    (out / "table.md").write_text("\n".join([*head, *rows]) + "\n")
    print("\n".join([*head, *rows]))


if __name__ == "__main__":
    main()
