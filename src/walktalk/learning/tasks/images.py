"""The default task: scikit-learn's bundled handwritten digits and a small multilayer perceptron. Nothing to fetch."""

from __future__ import annotations

import gzip
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import nn
from torch.nn import functional

from walktalk.core.errors import DataError
from walktalk.core.seeds import Seed, as_seed
from walktalk.core.settings import misfit
from walktalk.learning.data import CIFAR10, FASHION_MNIST, MNIST, CropAndFlip, cifar_batch, idx, locate, normalized
from walktalk.learning.models import BatchSoftmaxConv, resnet20, small_conv, vgg11
from walktalk.learning.models.convolutional import GROUPS, Norm
from walktalk.learning.partition import balanced_dirichlet, by_label, even_dirichlet, iid, own_part, true_dirichlet
from walktalk.learning.task import Task

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
        raise misfit("hidden", hidden, "a whole number, 1 or more", DataError)
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


# -- MNIST (LeCun et al. 1998) with the small network and the split of a published comparison of twelve algorithms ----

MNIST_MEAN, MNIST_STD = (0.1307,), (0.3081,)  # of the training images
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
            inputs = normalized(images, MNIST_MEAN, MNIST_STD)
            warmed(model, inputs, torch.from_numpy(labels), warm_up, warm_up_lr, root.child("warm-up"))
    images, labels, parts = own_samples(images, labels, parts, part)
    held_out = normalized(arrays[2][:, None], MNIST_MEAN, MNIST_STD), torch.from_numpy(arrays[3].astype("int64"))
    return Task(
        "mnist",
        model,
        functional.cross_entropy,
        normalized(images, MNIST_MEAN, MNIST_STD),
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


# -- CIFAR-10 with ResNet-20, the paper's image classification (Section 6, Table 5), or with VGG-11 -------------------

CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training images, per channel
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
    std = CIFAR_STD if scale == "images" else STD_OF_MANY_PAPERS
    test = (normalized(batches[5][0], CIFAR_MEAN, std), torch.from_numpy(batches[5][1])) if part is None else None
    return Task(
        "cifar10",
        make() if make else resnet20(norm=norm, groups=groups or GROUPS),
        functional.cross_entropy,
        normalized(images, CIFAR_MEAN, std),
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
    if samples < 1:
        raise misfit("samples", samples, "a whole number, 1 or more")
    if not 1 <= nodes <= samples:
        raise misfit("nodes", nodes, f"1 to {samples}, the number of samples")
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 3, 32, 32, generator=generator)
    targets = torch.randint(0, 10, (samples,), generator=generator)
    parts = np.array_split(np.arange(samples), nodes)
    return Task(
        "random images", resnet20(norm=norm), functional.cross_entropy, inputs, targets, parts, augment=CropAndFlip()
    )


# How a task with classes splits its data: iid, by Dirichlet(alpha), by label, or sorted and cut.

Kind: TypeAlias = Literal["dirichlet", "balanced", "even"]


def own_samples(
    images: np.ndarray, labels: np.ndarray, parts: list[np.ndarray], part: int | None
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Images, labels and parts as a node has them: its own alone; all of them where everybody's are wanted."""
    mine = own_part(parts, part)
    return (images, labels, parts) if mine is None else (images[mine], labels[mine], [np.arange(len(mine))])


def check_samples(samples: int | None, most: int) -> None:
    """Checks that there can be so many samples; None: all of them."""
    if samples is not None and not 1 <= samples <= most:
        raise misfit("samples", samples, f"1 to {most}", DataError)


def split_by_class(
    labels: np.ndarray,
    nodes: int,
    seed: Seed,
    alpha: float | None,
    labels_per_node: int | None = None,
    kind: Kind = "dirichlet",
    split_seed: int | None = None,
) -> list[np.ndarray]:
    """Splits samples by their classes; only one of alpha and labels_per_node may be given.

    kind: with alpha, the plain Dirichlet split; `balanced`, the published one; or `even`, the same cut anew into equal
    pieces, in the order of the nodes, as RelaySGD's authors do. split_seed: of the even split, that of published code.
    """
    if split_seed is not None and (alpha is None or kind != "even"):
        raise DataError(f"split_seed: {split_seed} is of published even splits; take split: even with an alpha")
    if alpha is not None and labels_per_node is not None:
        raise DataError(f"alpha: {alpha} and labels_per_node: {labels_per_node} exclude each other; leave one out")
    if labels_per_node is not None:
        return by_label(labels, nodes, labels_per_node, seed)
    if alpha is None:
        return iid(len(labels), nodes, seed)
    if kind == "dirichlet":
        return true_dirichlet(labels, nodes, alpha, seed)
    if kind == "balanced":
        return balanced_dirichlet(labels, nodes, alpha, seed)
    return even_dirichlet(labels, nodes, alpha, seed if split_seed is None else np.random.RandomState(split_seed))


def sorted_and_cut(labels: np.ndarray, nodes: int) -> list[np.ndarray]:
    """All samples in the order of their labels, cut into equal pieces: one or two classes a node."""
    if nodes > len(labels):
        raise DataError(f"nodes: {nodes} is more than the {len(labels)} samples there are; every node needs one")
    return np.array_split(np.argsort(labels, kind="stable"), nodes)
