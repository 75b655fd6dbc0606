"""MNIST (LeCun et al. 1998) with the small network and the split of a published comparison of twelve algorithms."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch.nn import functional

from walktalk.core.seeds import Seed, as_seed
from walktalk.learning.data import locate
from walktalk.learning.data.files import FASHION_MNIST, MNIST, idx, normalized
from walktalk.learning.models import BatchSoftmaxConv, small_conv
from walktalk.learning.task import Task
from walktalk.learning.tasks.parts import check_samples, own_samples, sorted_and_cut, split_by_class

MEAN, STD = (0.1307,), (0.3081,)  # of the training images
WARM_BATCH = 32  # samples of a step of the warm-up


def mnist(
    nodes: int = 24,
    alpha: Annotated[float, Gt(0)] | None = None,
    seed: int | Seed = 0,
    *,
    split: Literal["sorted", "iid"] = "sorted",
    softmax: Literal["batch", "classes"] = "classes",
    warm_up: Annotated[int, Ge(0), Le(1_000_000)] = 0,
    warm_up_lr: Annotated[float, Gt(0)] = 4e-4,
    samples: Annotated[int, Ge(1), Le(60_000)] | None = None,
    folder: str | None = None,
    part: int | None = None,
) -> Task:
    """60,000 images of 28×28 grey pixels: digits.

    Args:
        nodes: how many nodes the data is split over.
        alpha: of a Dirichlet split, in place of split.
        seed: of the split, and of the warm-up and the model that it begins with.
        split: sorted: by label, cut into equal pieces, so that a node has one or two digits; iid: dealt out.
        softmax: over what the network's scores end with a log-softmax: batch, as in the published comparison, whose
            numbers depend on it; classes: none but the loss's own.
        warm_up: steps of plain SGD on everybody's data, of 32 samples each, that all nodes' first model has had.
        warm_up_lr: their learning rate.
        samples: only that many images, for a quick try.
        folder: where the four files are, if not in the cache.
        part: a node's number: then it is that node's task, with its samples alone. None: everybody's.
    """
    check_samples(samples, 60_000)
    here, root = locate(MNIST, folder), as_seed(seed)
    arrays = [idx(here / name) for name in MNIST.files]
    images, labels = arrays[0][:samples, None], arrays[1][:samples].astype("int64")
    if alpha is None and split == "sorted":
        parts = sorted_and_cut(labels, nodes)
    else:
        parts = split_by_class(labels, nodes, root.child("partition"), alpha)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(root.child("start").integer % 2**63)  # for what is warmed up, which no run draws anew
        model = BatchSoftmaxConv(softmax == "batch")
        if warm_up:
            inputs = normalized(images, MEAN, STD)
            warmed(model, inputs, torch.from_numpy(labels), warm_up, warm_up_lr, root.child("warm-up"))
    images, labels, parts = own_samples(images, labels, parts, part)
    held_out = normalized(arrays[2][:, None], MEAN, STD), torch.from_numpy(arrays[3].astype("int64"))
    return Task(
        "mnist",
        model,
        functional.cross_entropy,
        normalized(images, MEAN, STD),
        torch.from_numpy(labels),
        parts,
        held_out if part is None else None,
        labels=labels,
        pretrained=warm_up > 0,
    )


def warmed(
    model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor, steps: int, lr: float, seed: Seed
) -> None:
    """Makes some steps of plain SGD, in place, on batches drawn with replacement."""
    generator = torch.Generator().manual_seed(seed.integer % 2**63)
    parameters: list[torch.Tensor] = list(model.train().parameters())
    for _ in range(steps):
        batch = torch.randint(len(inputs), (WARM_BATCH,), generator=generator)
        loss = functional.cross_entropy(model(inputs[batch]), targets[batch])
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, list(gradients), alpha=-lr)


# Fashion-MNIST (Xiao et al. 2017) with a small convolutional network: between digits and CIFAR-10.

FASHION_MEAN, FASHION_STD = (0.2860,), (0.3530,)  # of the training images


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
    held_out = normalized(arrays[2][:, None], FASHION_MEAN, FASHION_STD), torch.from_numpy(arrays[3].astype("int64"))
    return Task(
        "fashion_mnist",
        small_conv(),
        functional.cross_entropy,
        normalized(images, FASHION_MEAN, FASHION_STD),
        torch.from_numpy(labels),
        parts,
        held_out if part is None else None,
        labels=labels,
    )
