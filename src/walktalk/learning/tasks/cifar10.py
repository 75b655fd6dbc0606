"""CIFAR-10 with ResNet-20, the paper's image classification (Section 6, Table 5), or with VGG-11."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt
from torch.nn import functional

from walktalk.core.seeds import Seed, as_seed
from walktalk.learning.data import locate
from walktalk.learning.data.files import CIFAR10, CropAndFlip, cifar_batch, normalized
from walktalk.learning.models import resnet20, vgg11
from walktalk.learning.models.convolutional import GROUPS, Norm
from walktalk.learning.task import Task
from walktalk.learning.tasks.parts import Kind, check_samples, own_samples, split_by_class

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training images, per channel
STD_OF_MANY_PAPERS = (0.2023, 0.1994, 0.2010)  # means over images of each image's own: what much published code has


def cifar10(
    nodes: int = 20,
    alpha: Annotated[float, Gt(0)] | None = None,
    seed: int | Seed = 0,
    *,
    labels_per_node: Annotated[int, Ge(1)] | None = None,
    split: Kind = "dirichlet",
    split_seed: Annotated[int, Ge(0), Lt(2**32)] | None = None,
    model: Literal["resnet20", "vgg11"] = "resnet20",
    norm: Norm = "batch",
    groups: Literal[1, 2, 4, 8, 16] | None = None,
    width: Annotated[float, Gt(0), Le(1)] = 1.0,
    scale: Literal["images", "papers"] = "images",
    augment: bool = True,
    samples: Annotated[int, Ge(1), Le(50_000)] | None = None,
    folder: str | None = None,
    part: int | None = None,
) -> Task:
    """50,000 images of 32×32 pixels in ten classes, for ResNet-20 or VGG-11.

    Args:
        nodes: how many nodes the data is split over.
        alpha: of a Dirichlet split: large, and all nodes are alike; small, and they are very different. None: iid.
        seed: of the split.
        labels_per_node: how many classes each node has, in place of alpha.
        split: with alpha, a plain Dirichlet split; balanced: the published one, in which nodes have about as many
            samples each; even: the same, cut anew into equal parts.
        split_seed: of an even split, a seed of numpy's old generator: the very samples that published code deals out.
        model: the network; VGG-11 has no normalization, and dropout.
        norm: ResNet-20's normalization.
        groups: of its group norm; 8 if left out.
        width: the share of VGG-11's channels that every layer has; a quarter for a CPU.
        scale: pixels are divided by their standard deviation; papers: by the smaller numbers of much published code.
        augment: random crop and flip in training.
        samples: only that many images, for a quick try.
        folder: where the six files are, if not in the cache.
        part: a node's number: then it is that node's task, with its samples alone. None: everybody's.
    """
    check_samples(samples, 50_000)
    here = locate(CIFAR10, folder)
    batches = [cifar_batch(here / name) for name in CIFAR10.files]
    images, labels = np.concatenate([b[0] for b in batches[:5]]), np.concatenate([b[1] for b in batches[:5]])
    images, labels = images[:samples], labels[:samples]
    root = as_seed(seed)
    parts = split_by_class(labels, nodes, root.child("partition"), alpha, labels_per_node, split, split_seed)
    images, labels, parts = own_samples(images, labels, parts, part)
    make = partial(vgg11, width=width) if model == "vgg11" else None
    std = STD if scale == "images" else STD_OF_MANY_PAPERS
    test = (normalized(batches[5][0], MEAN, std), torch.from_numpy(batches[5][1])) if part is None else None
    return Task(
        "cifar10",
        make() if make else resnet20(norm=norm, groups=groups or GROUPS),
        functional.cross_entropy,
        normalized(images, MEAN, std),
        torch.from_numpy(labels),
        parts,
        test,
        labels=labels,
        augment=CropAndFlip() if augment else None,
        make=make,
    )


# Noise in the shape of CIFAR-10, with ResNet-20: for benchmarks and tests where the images do not matter.


def random_images(nodes: int = 20, samples: int = 10_000, seed: int = 0, norm: Norm = "batch") -> Task:
    """Noise in the shape of CIFAR-10 for ResNet-20, for benchmarks: nothing has to be there, and nothing is learned.

    Args:
        nodes: how many nodes the data is split over, evenly.
        samples: how many images there are.
        seed: of the noise.
        norm: ResNet-20's normalization.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 3, 32, 32, generator=generator)
    targets = torch.randint(0, 10, (samples,), generator=generator)
    parts = np.array_split(np.arange(samples), nodes)
    return Task(
        "random images", resnet20(norm=norm), functional.cross_entropy, inputs, targets, parts, augment=CropAndFlip()
    )
