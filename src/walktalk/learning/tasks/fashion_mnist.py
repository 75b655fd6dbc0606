"""Fashion-MNIST (Xiao et al. 2017) with a small convolutional network: between digits and CIFAR-10."""

from __future__ import annotations

import torch
from torch.nn import functional

from walktalk.errors import DataError
from walktalk.learning.data import locate
from walktalk.learning.data.files import FASHION_MNIST
from walktalk.learning.data.images import idx, normalized
from walktalk.learning.models import small_conv
from walktalk.learning.task import Task
from walktalk.learning.tasks.split import split_by_class
from walktalk.seeds import Seed, as_seed

MEAN, STD = (0.2860,), (0.3530,)  # of the training images


def fashion_mnist(
    nodes: int = 20,
    alpha: float | None = None,
    seed: int | Seed = 0,
    *,
    labels_per_node: int | None = None,
    samples: int | None = None,
    folder: str | None = None,
) -> Task:
    """60,000 images of 28×28 grey pixels in ten classes of clothing.

    Args:
        nodes: How many nodes share the data.
        alpha: Of a Dirichlet split over nodes, class by class: 10 is almost even, 0.1 very uneven; iid if left
            out.
        seed: Of the split.
        labels_per_node: That many classes a node and no other, in place of `alpha`.
        samples: Only that many images, for a quick try.
        folder: Where the four files are, if not in the cache.
    """
    if samples is not None and not 1 <= samples <= 60_000:
        raise DataError(f"samples: {samples} is not possible; allowed: 1 to 60000")
    here = locate(FASHION_MNIST, folder)
    arrays = [idx(here / name) for name in FASHION_MNIST.files]
    images, labels = arrays[0][:samples, None], arrays[1][:samples].astype("int64")
    parts = split_by_class(labels, nodes, as_seed(seed).child("partition"), alpha, labels_per_node)
    test = normalized(arrays[2][:, None], MEAN, STD), torch.from_numpy(arrays[3].astype("int64"))
    return Task(
        "fashion_mnist",
        small_conv(),
        functional.cross_entropy,
        normalized(images, MEAN, STD),
        torch.from_numpy(labels),
        parts,
        test,
        labels=labels,
    )
