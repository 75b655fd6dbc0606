"""What two bad nodes of twenty do, and what a screen against them buys and costs.

    python results/2026-11-16-bad-nodes-table/bad_nodes.py --out results/2026-11-16-bad-nodes-table
    python results/2026-11-16-bad-nodes-table/bad_nodes.py --seeds 1 2 3 4 5 6 7 8 9 10 --repetitions 1 --attacks none flip gone \
        --algorithms "gossip in pairs" "gossip in pairs, refuse(0.7)" "4 walks" "4 walks, refuse(0.7)" --out out/graphs

Digits, Dirichlet(1), 20 nodes, Erdős–Rényi(0.3), weight decay 0.01 so that losses come to rest, 6,000 iterations; the
same seeds with no attack, and with nodes 3 and 7 that turn the signs of what they send, blow it up tenfold, or put
noise on it that is as long as the model; and with the two dead from the start, which is what no defence can save: their
data. A study's seed makes graph, split and initial model. The loss is that on the data of all twenty nodes. Writes
`ends.csv` (mean of the last five evaluations of every run), `table.md` (means over the runs with intervals of 95 %) and
`ratios.md` (to the loss of the same algorithm without screen and attack, run by run, with the same intervals).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import stats

from walktalk.studies import StudySpec, make_spec, run_study

BAD = [3, 7]
ATTACKS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "flip": [{"kind": "corrupt", "at": 0, "nodes": BAD, "how": "flip"}],
    "scale(10)": [{"kind": "corrupt", "at": 0, "nodes": BAD, "how": "scale", "factor": 10.0}],
    "noise(1)": [{"kind": "corrupt", "at": 0, "nodes": BAD, "how": "noise", "factor": 1.0}],
    "gone": [{"kind": "kill", "at": 0, "node": node} for node in BAD],
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
    parser.add_argument("--repetitions", type=int, default=5, help="runs of a study, on one graph and split")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the studies")
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    labels = [each["label"] for each in ALGORITHMS]
    parser.add_argument("--algorithms", nargs="+", choices=labels, default=labels)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = [each for each in ALGORITHMS if each["label"] in options.algorithms]
    runs = [
        ends(algorithm, attack, options.repetitions, seed)
        for algorithm in chosen
        for attack in options.attacks
        for seed in options.seeds
        if attack != "gone" or "screen" not in algorithm  # nobody is there to be screened
    ]
    write(pd.concat(runs), options.out, [each["label"] for each in chosen], options.attacks)


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


def ends(algorithm: dict[str, Any], attack: str, repetitions: int, seed: int) -> pd.DataFrame:
    """The losses at which the runs under one attack came to rest."""
    spec = study_of([algorithm], seed=seed, repetitions=repetitions, faults=ATTACKS[attack])
    return at_rest(run_study(spec).history, attack, seed)


def at_rest(history: pd.DataFrame, attack: str, seed: int = 0) -> pd.DataFrame:
    """The mean of the last five evaluations of every run."""
    last = history.sort_values("iteration").groupby(["algorithm", "repetition"]).tail(5)
    means = last.groupby(["algorithm", "repetition"])[["train_loss", "test_accuracy"]].mean().reset_index()
    means.insert(0, "attack", attack)
    means.insert(1, "seed", seed)
    return means


def write(table: pd.DataFrame, out: Path, algorithms: list[str], attacks: list[str]) -> None:
    """All runs, and tables of their losses and of the ratios to undefended, unharmed ones; both are printed, too."""
    table.to_csv(out / "ends.csv", index=False, float_format="%.6g")
    losses = table.set_index(["algorithm", "attack", "seed", "repetition"])["train_loss"].sort_index()
    for name, numbers in (("table.md", losses), ("ratios.md", ratios(losses))):
        rows = [
            f"| {one} | {' | '.join(with_interval(numbers, one, attack) for attack in attacks)} |" for one in algorithms
        ]
        lines = [f"| algorithm | {' | '.join(attacks)} |", "| --- " * (len(attacks) + 1) + "|", *rows]
        (out / name).write_text("\n".join(lines) + "\n")
        print("\n".join(lines))


def ratios(losses: pd.Series) -> pd.Series:
    """Every loss by that of the same run without screen and attack; none where that was not run."""
    plain = [(name.split(",")[0], "none", seed, run) for name, _, seed, run in losses.index]
    known = [place in losses.index for place in plain]
    return losses[known] / losses.reindex([place for place in plain if place in losses.index]).to_numpy()


def with_interval(numbers: pd.Series, algorithm: str, attack: str) -> str:
    """The mean of these runs, and how far that of all such runs may be off (95 %, Student's t)."""
    if (algorithm, attack) not in numbers.index.droplevel(["seed", "repetition"]):
        return ""
    these = numbers.loc[algorithm, attack]
    if len(these) < 2 or not these.notna().all():
        return f"{these.mean(skipna=False):.3g}"
    half = stats.t.ppf(0.975, len(these) - 1) * these.std() / len(these) ** 0.5
    return f"{these.mean():.3g} ± {half:.2g}"


if __name__ == "__main__":
    main()
