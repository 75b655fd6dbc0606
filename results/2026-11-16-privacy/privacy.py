"""What privacy costs: the loss against ε, of walks and gossip on the quickstart's network and data.

    python results/2026-11-16-privacy/privacy.py --out results/2026-11-16-privacy

Digits, Dirichlet(1), 20 nodes, Erdős–Rényi(0.3), 600 iterations (30 updates of each node on average), δ = 1e-5; updates
cut to several lengths, under noise of several sizes. ε is that of the node that has released most. Writes `ends.csv`
(the end of every run) and `table.md`: for every noise the length at which the loss is lowest.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd

from walktalk.studies import make_spec, run_study

CLIPS = (0.1, 0.3, 1.0)
NOISES = (0.03, 0.1, 0.3, 1.0, 3.0)
PLAIN: dict[str, dict[str, Any]] = {
    "4 walks": {"name": "multi_walk", "walks": 4},
    "gossip in pairs": {"name": "async_gossip"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    table = ends(options.repetitions)
    table.to_csv(options.out / "ends.csv", index=False, float_format="%.6g")
    text = "\n".join(lines(table)) + "\n"
    (options.out / "table.md").write_text(text)
    print(text, end="")


def ends(repetitions: int) -> pd.DataFrame:
    """The last row of every run, with what it was."""
    settings = [
        {"algorithm": f"{name}, {clip:g}, {noise:g}", "kind": name, "clip": clip, "noise": noise}
        for name in PLAIN
        for clip in CLIPS
        for noise in NOISES
    ]
    private = [
        {**PLAIN[one["kind"]], "label": one["algorithm"], "privacy": {"clip": one["clip"], "noise": one["noise"]}}
        for one in settings
    ]
    spec = make_spec(
        {
            "name": "privacy",
            "network": {"topology": "erdos_renyi", "nodes": 20, "p": 0.3},
            "task": {"name": "digits", "alpha": 1.0},
            "algorithms": [*private, *({**plain, "label": name} for name, plain in PLAIN.items())],
            "stop": {"iterations": 600},
            "evaluate": {"every": 600},
            "repetitions": repetitions,
        }
    )
    last = run_study(spec).history.groupby(["algorithm", "repetition"]).tail(1)
    known = pd.DataFrame([*settings, *({"algorithm": name, "kind": name, "noise": 0.0} for name in PLAIN)])
    kept = ["algorithm", "repetition", "kind", "clip", "noise", "epsilon", "train_loss", "test_accuracy"]
    return last.merge(known, on="algorithm")[kept]


def lines(table: pd.DataFrame) -> list[str]:
    """A row for each algorithm and noise, at its best length."""
    numbers = ["epsilon", "train_loss", "test_accuracy"]
    means = table.groupby(["kind", "noise", "clip"], dropna=False)[numbers].mean().reset_index()
    best = means.loc[means.groupby(["kind", "noise"])["train_loss"].idxmin()]
    rows = ["| algorithm | noise | ε | clip | train loss | test accuracy |", "| --- " * 6 + "|"]
    for kind, noise, clip, epsilon, loss, accuracy in best.itertuples(index=False):
        spent = ("∞", "–") if noise == 0 else (f"{epsilon:.3g}", f"{clip:g}")
        rows.append(f"| {kind} | {noise:g} | {spent[0]} | {spent[1]} | {loss:.3g} | {accuracy:.3f} |")
    return rows


if __name__ == "__main__":
    main()
