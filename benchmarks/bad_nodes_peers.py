"""Two bad nodes of twenty on real peers: what they do to walks and gossip, with and without a screen.

    python benchmarks/bad_nodes_peers.py --iterations 1200 --out results/2026-11-16-bad-nodes-peers

The study of `bad_nodes.py`, every node a process of its own over Zenoh on this machine. Nodes 3 and 7 turn the signs of
what they send, from the first moment: a file `spoils` lies in their folders before they are started. Writes `ends.csv`
(mean of the last five evaluations of every run), `table.md` and `ratios.md`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from bad_nodes import BAD, at_rest, study_of, write
from walktalk.records import StudyFolder
from walktalk.runtimes.peers import SPOILS
from walktalk.studies.peers import run_on_peers

ATTACKS = ["none", "flip"]
ALGORITHMS: list[dict[str, Any]] = [
    {"name": "async_gossip", "label": "gossip in pairs"},
    {"name": "async_gossip", "screen": "refuse(0.7)", "label": "gossip in pairs, refuse(0.7)"},
    {"name": "multi_walk", "walks": 4, "label": "4 walks"},
    {"name": "multi_walk", "walks": 4, "screen": "refuse(0.7)", "label": "4 walks, refuse(0.7)"},
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--iterations", type=int, default=6000)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    runs = [end(algorithm, attack, options.iterations) for attack in ATTACKS for algorithm in ALGORITHMS]
    write(pd.concat(runs), options.out, [each["label"] for each in ALGORITHMS], ATTACKS)


def end(algorithm: dict[str, Any], attack: str, iterations: int) -> pd.DataFrame:
    """The loss at which one run came to rest."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        # Thirty evaluations a run, as there: what is far from rest in a short one is left out of the mean.
        spec = study_of([algorithm], stop={"iterations": iterations}, evaluate={"every": max(1, iterations // 30)})

        def spoil(progress: object) -> None:
            """Called before the nodes are started, and now and then."""
            for node in BAD if attack == "flip" else ():
                place = StudyFolder(out).run(algorithm["label"], 0).nodes / f"node-{node}"
                place.mkdir(parents=True, exist_ok=True)
                (place / SPOILS).write_text("flip")

        return at_rest(run_on_peers(spec, out, progress=spoil).history, attack)


if __name__ == "__main__":
    main()
