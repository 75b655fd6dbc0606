"""Fashion-MNIST (Xiao et al. 2017) with a small convolutional network: between digits and CIFAR-10."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le
from torch.nn import functional

from walktalk.learning.data import locate
from walktalk.learning.data.files import FASHION_MNIST
from walktalk.learning.data.images import idx, normalized
from walktalk.learning.models import small_conv
from walktalk.learning.task import Task
from walktalk.learning.tasks.split import check_samples, own_samples, split_by_class
from walktalk.seeds import Seed, as_seed

MEAN, STD = (0.2860,), (0.3530,)  # of the training images


def fashion_mnist(
    nodes: int = 20,
    alpha: Annotated[float, Gt(0)] | None = None,
    seed: int | Seed = 0,
    *,
    labels_per_node: Annotated[int, Ge(1)] | None = None,
    samples: Annotated[int, Ge(1), Le(60_000)] | None = None,
    folder: str | None = None,
    part: int | None = None,
) -> Task:
    """60,000 images of 28×28 grey pixels in ten classes of clothing.

    Args:
        nodes: how many nodes the data is split over.
        alpha: of a Dirichlet split: large, and all nodes are alike; small, and they are very different. None: iid.
        seed: of the split.
        labels_per_node: how many classes each node has, in place of alpha.
        samples: only that many images, for a quick try.
        folder: where the four files are, if not in the cache.
        part: a node's number: then it is that node's task, with its samples alone. None: everybody's.
    """
    check_samples(samples, 60_000)
    here = locate(FASHION_MNIST, folder)
    arrays = [idx(here / name) for name in FASHION_MNIST.files]
    images, labels = arrays[0][:samples, None], arrays[1][:samples].astype("int64")
    parts = split_by_class(labels, nodes, as_seed(seed).child("partition"), alpha, labels_per_node)
    images, labels, parts = own_samples(images, labels, parts, part)
    held_out = normalized(arrays[2][:, None], MEAN, STD), torch.from_numpy(arrays[3].astype("int64"))
    return Task(
        "fashion_mnist",
        small_conv(),
        functional.cross_entropy,
        normalized(images, MEAN, STD),
        torch.from_numpy(labels),
        parts,
        held_out if part is None else None,
        labels=labels,
    )
