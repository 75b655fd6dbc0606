"""How uneven the split of table1 at α = 0.1 is, beside 300 others drawn in the same way.

    python benchmarks/published_splits.py --data FOLDER > results/2026-11-16-published/splits.csv

Of every split the mean total variation between the classes of a node, or of a node and its two neighbours on the ring,
and all classes alike. The first line is the split that the study has.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # also runs where nothing is installed

from walktalk.learning.data.images import cifar_batch
from walktalk.learning.tasks.split import split_by_class
from walktalk.seeds import Seed

WORKERS, ALPHA, SPLITS = 16, 0.1, 300


def unevenness(labels: np.ndarray, seed: Seed) -> tuple[float, float]:
    parts = split_by_class(labels, WORKERS, seed, ALPHA, kind="even")
    shares = np.array([np.bincount(labels[part], minlength=10) / len(part) for part in parts])
    around = (shares + np.roll(shares, 1, 0) + np.roll(shares, -1, 0)) / 3
    return apart(shares), apart(around)


def apart(shares: np.ndarray) -> float:
    return float(0.5 * np.abs(shares - 0.1).sum(1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the official CIFAR-10 binary files")
    options = parser.parse_args()
    labels = np.concatenate([cifar_batch(options.data / f"data_batch_{k}.bin")[1] for k in range(1, 6)])
    print("split,node,neighbourhood")
    seeds = {"study": Seed(0).child("data").child("partition"), **{str(k): Seed(k) for k in range(SPLITS)}}
    for name, seed in seeds.items():
        node, around = unevenness(labels, seed)
        print(f"{name},{node:.5f},{around:.5f}")


if __name__ == "__main__":
    main()
