"""Figure 3: how the Dirichlet split makes nodes differ, over many seeds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from claims.spread import Cell, percent, spread, table
from walktalk.core.seeds import Seed
from walktalk.learning.tasks.images import split_by_class

CLASSES, IMAGES, NODES, SEEDS = 10, 50_000, 20, 20  # of CIFAR-10 and of the runs
LABELS = np.repeat(np.arange(CLASSES), IMAGES // CLASSES)
NEARLY_ALL = 0.9
CLAIM = "As α decreases, a node more likely holds one class only (Figure 3)"


def section(alphas: Iterable[float]) -> list[str]:
    rows: dict[str, list[Cell]] = {}
    for alpha in alphas:
        shares = [largest_shares(alpha, seed) for seed in range(SEEDS)]
        rows[f"α = {alpha:g}"] = [
            spread(100 * float(of.mean()) for of in shares),
            spread(100 * float(of.max()) for of in shares),
            spread(float((of > 0.5).sum()) for of in shares),
            spread(float((of > NEARLY_ALL).sum()) for of in shares),
        ]
    head = [
        "largest class, mean of the nodes, %",
        "of the node with most, %",
        f"nodes of {NODES} with over half",
        f"nodes of {NODES} with over {percent(NEARLY_ALL)}",
    ]
    return [table(CLAIM, "share of a node's largest class, a seed being a repetition", head, rows, 1)]


def largest_shares(alpha: float, seed: int) -> np.ndarray:
    """Of each node: how much of its data is of the class that it has most of.

    The split of a study with this seed. It depends on how many images a class has, not on which they are, so that the
    data set itself is not needed.
    """
    parts = split_by_class(LABELS, NODES, Seed(seed).child("data").child("partition"), alpha)
    return np.array([np.bincount(LABELS[part], minlength=CLASSES).max() / len(part) for part in parts])
