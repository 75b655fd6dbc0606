"""VGG-11 (Simonyan and Zisserman 2015) for 32×32 images, without norm, as papers on decentralized learning have it."""

from __future__ import annotations

import math

from torch import nn

LAYERS = ((64, True), (128, True), (256, False), (256, True), (512, False), (512, True), (512, False), (512, True))


def vgg11(classes: int = 10, width: float = 1.0) -> nn.Module:
    """9,750,922 parameters for ten classes; dropout between the linear layers.

    Args:
        classes: how many there are.
        width: the share of the published channels that every layer has; a quarter trains 15 times as fast on a CPU.

    Convolutions start from N(0, 2 / (9 · channels that leave)), their biases from zero, linear layers as torch has it:
    with torch's own start a network as deep as this, and without norm, hardly learns.
    """
    layers: list[nn.Module] = []
    entering = 3
    for channels, is_pooled in LAYERS:  # of a convolution, and whether 2×2 maxima follow
        leaving = max(1, round(width * channels))
        conv = nn.Conv2d(entering, leaving, 3, padding=1)
        nn.init.normal_(conv.weight, 0.0, math.sqrt(2.0 / (9 * leaving)))
        nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
        layers += [conv, nn.ReLU(), *([nn.MaxPool2d(2)] if is_pooled else [])]
        entering = leaving
    hidden = [part for _ in range(2) for part in (nn.Dropout(), nn.Linear(entering, entering), nn.ReLU())]
    return nn.Sequential(*layers, nn.Flatten(), *hidden, nn.Linear(entering, classes))
