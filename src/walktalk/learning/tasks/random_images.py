"""Noise in the shape of CIFAR-10, with ResNet-20: for benchmarks and tests where the images do not matter."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from walktalk.learning.data.images import CropAndFlip
from walktalk.learning.models import resnet20
from walktalk.learning.models.resnet20 import Norm
from walktalk.learning.task import Task


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
