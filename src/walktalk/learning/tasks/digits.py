"""The default task: scikit-learn's bundled handwritten digits and a small multilayer perceptron. Nothing to fetch."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from walktalk.errors import DataError
from walktalk.learning.task import Task
from walktalk.learning.tasks.split import split_by_class
from walktalk.seeds import Seed, as_seed

TEST_SHARE = 5  # every fifth sample, after shuffling, is kept for the test


def digits(
    nodes: int = 20,
    alpha: float | None = None,
    seed: int | Seed = 0,
    *,
    hidden: int = 64,
    labels_per_node: int | None = None,
) -> Task:
    """1,797 images of 8×8 pixels in ten classes; split iid, by Dirichlet(alpha), or by label.

    Args:
        nodes: How many nodes share the data.
        alpha: Of a Dirichlet split over nodes, class by class: 10 is almost even, 0.1 very uneven; iid if left
            out.
        seed: Of the split.
        hidden: Units of the perceptron's hidden layer.
        labels_per_node: That many classes a node and no other, in place of `alpha`.
    """
    if hidden < 1:
        raise DataError(f"hidden: {hidden} is not possible; at least 1 is needed")
    root = as_seed(seed)
    data = load_digits()
    order = root.child("shuffle").numpy().permutation(len(data.target))
    inputs = torch.tensor(data.data[order] / 16.0, dtype=torch.float32)
    targets = torch.tensor(data.target[order], dtype=torch.int64)
    held_out = torch.arange(len(order)) % TEST_SHARE == 0
    train, labels = (inputs[~held_out], targets[~held_out]), targets[~held_out].numpy()
    parts = split_by_class(labels, nodes, root.child("partition"), alpha, labels_per_node)
    model = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    test = (inputs[held_out], targets[held_out])
    return Task("digits", model, functional.cross_entropy, *train, parts, test, labels=labels)
