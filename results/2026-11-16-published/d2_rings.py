"""Whether D² forgets noise: how far models are from each other on rings of 15 and 16, while they learn and afterwards.

    python results/2026-11-16-published/d2_rings.py --out results/2026-11-16-published/d2.csv

With weights of 1/3 the smallest eigenvalue on an even ring is −1/3, where D²'s theory asks for more: what is +a at even
nodes and −a at odd ones is multiplied by −1 in every round. Half of the way D² trains as in Table 1 in small (digits),
then the learning rate is all but zero: what is left between the models either fades or stays. Half a minute on a CPU.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # also runs where nothing is installed

from walktalk.reproduction.published import find_table
from walktalk.studies import run_study

ROUNDS, LOOKS = 1000, 10
KINDS = {"ring of 16": (16, False), "ring of 15": (15, False), "ring of 16, lazy": (16, True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where the CSV file goes")
    out = parser.parse_args().out
    found = pd.DataFrame({name: consensus(nodes, lazy) for name, (nodes, lazy) in KINDS.items()})
    found.to_csv(out, index_label="round", float_format="%.4g")
    print(found)


def consensus(nodes: int, lazy: bool) -> dict[int, float]:
    """Round -> the mean squared distance of the models to their mean."""
    table = find_table("table1")
    changes = {
        "network": {"topology": "cycle", "nodes": nodes},
        "algorithms": [{"name": "d2", "lazy": lazy, "label": "d2", "lr": 0.2}],
        "task": {"alpha": 0.1},
        "schedule": {"decay_at": [0.5], "factor": 1e-6},
        "stop": {"iterations": ROUNDS * nodes},
        "evaluate": {"every": ROUNDS // LOOKS * nodes},
    }
    result = run_study(table.spec(table.row("d2-ring"), "alpha0.1", "smoke", changes), device="cpu")
    return {row.iteration // nodes: row.consensus for row in result.runs[0].history}


if __name__ == "__main__":
    main()
