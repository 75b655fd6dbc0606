"""How uneven the splits of table1 at α = 0.1 are: the three published ones, 300 drawn like them, and an earlier one.

    python results/2026-11-16-published/published_splits.py --data FOLDER > results/2026-11-16-published/splits.csv

Of every split the mean total variation between the classes of a node, or of a node and its two neighbours on the ring,
and all classes alike. `earlier` is the split of the cells in results/2026-11-16-published/table1-own-split: there what
a node has was in the order of the samples and not class after class when all was cut anew into equal parts.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))  # also runs where nothing is installed

from walktalk.core.seeds import Seed
from walktalk.learning.data import cifar_batch
from walktalk.learning.partition import balanced_dirichlet, even_dirichlet

WORKERS, ALPHA, SPLITS = 16, 0.1, 300


def unevenness(labels: np.ndarray, parts: list[np.ndarray]) -> tuple[float, float]:
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
    seed = Seed(0).child("data").child("partition")
    earlier = np.concatenate(balanced_dirichlet(labels, WORKERS, ALPHA, seed))
    splits = {"earlier": np.array_split(earlier, WORKERS)}
    for k in (101, 102, 103):
        splits[f"published {k - 100}"] = even_dirichlet(labels, WORKERS, ALPHA, np.random.RandomState(k))
    for k in range(SPLITS):
        splits[str(k)] = even_dirichlet(labels, WORKERS, ALPHA, Seed(k))
    for name, parts in splits.items():
        node, around = unevenness(labels, parts)
        print(f"{name},{node:.5f},{around:.5f}")


if __name__ == "__main__":
    main()
