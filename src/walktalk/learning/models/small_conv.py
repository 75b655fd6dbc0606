"""A small convolutional network for 28×28 images in one channel: two convolutions, one hidden layer."""

from __future__ import annotations

from torch import nn


def small_conv(classes: int = 10) -> nn.Module:
    """28,938 parameters, for Fashion-MNIST."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, classes),
    )
