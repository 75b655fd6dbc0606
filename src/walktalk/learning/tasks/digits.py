"""The default task: scikit-learn's bundled handwritten digits and a small multilayer perceptron. Nothing to fetch."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Gt
from torch import nn
from torch.nn import functional

from walktalk.core.errors import DataError
from walktalk.core.seeds import Seed, as_seed
from walktalk.learning.task import Task
from walktalk.learning.tasks.parts import split_by_class

TEST_SHARE = 5  # every fifth sample, after shuffling, is kept for the test


def digits(
    nodes: int = 20,
    alpha: Annotated[float, Gt(0)] | None = None,
    seed: int | Seed = 0,
    *,
    hidden: Annotated[int, Ge(1)] = 64,
    labels_per_node: Annotated[int, Ge(1)] | None = None,
) -> Task:
    """1,797 images of 8×8 pixels in ten classes; split iid, by Dirichlet(alpha), or by label.

    Args:
        nodes: how many nodes the data is split over.
        alpha: of a Dirichlet split: large, and all nodes are alike; small, and they are very different. None: iid.
        seed: of the split.
        hidden: units of the hidden layer.
        labels_per_node: how many classes each node has, in place of alpha.
    """
    if hidden < 1:
        raise DataError(f"hidden: {hidden} is not possible; at least 1 is needed")
    root = as_seed(seed)
    table = bundled_digits()
    order = root.child("shuffle").numpy().permutation(len(table))
    inputs = torch.tensor(table[order, :64] / 16.0, dtype=torch.float32)
    targets = torch.tensor(table[order, 64], dtype=torch.int64)
    held_out = torch.arange(len(order)) % TEST_SHARE == 0
    train, labels = (inputs[~held_out], targets[~held_out]), targets[~held_out].numpy()
    parts = split_by_class(labels, nodes, root.child("partition"), alpha, labels_per_node)
    model = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    test = (inputs[held_out], targets[held_out])
    return Task("digits", model, functional.cross_entropy, *train, parts, test, labels=labels)


def bundled_digits() -> np.ndarray[Any, np.dtype[np.float64]]:
    """A row for each image: 64 pixels from 0 to 16, and its class.

    Out of scikit-learn's folder and not by scikit-learn: importing it takes 140 MB and longer than torch, in every
    process of a cluster, for a file of 57 KB.
    """
    package = find_spec("sklearn")
    file = Path(package.origin if package and package.origin else "").parent / "datasets" / "data" / "digits.csv.gz"
    if not file.is_file():  # another version may keep it elsewhere: that one knows where
        from sklearn.datasets import load_digits

        bunch = load_digits()
        return np.column_stack([bunch.data, bunch.target])
    return np.loadtxt(gzip.decompress(file.read_bytes()).decode().splitlines(), delimiter=",")
