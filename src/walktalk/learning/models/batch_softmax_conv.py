"""The small network of a published comparison on MNIST (You and Pu 2024, code ryou98/BTPP), its last line included."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

EVALUATED = 64  # images of a batch in an evaluation there


class BatchSoftmaxConv(nn.Module):
    """Two 5×5 convolutions, dropout, two linear layers; 21,840 parameters.

    Its scores end with a log-softmax over the *batch* and not over the classes, before the usual cross-entropy: a score
    is how much more than the other images of the batch this one looks like the class. So what is learned and measured
    depends on which images come together. It is kept, because the published numbers depend on it: in training a batch
    is the node's own, in evaluation it is 64 images.
    """

    def __init__(self, over_batch: bool = True) -> None:
        super().__init__()
        self.over_batch = over_batch
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.drop_channels, self.drop = nn.Dropout2d(), nn.Dropout()
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(functional.max_pool2d(self.conv1(x), 2))
        x = functional.relu(functional.max_pool2d(self.drop_channels(self.conv2(x)), 2))
        x = functional.relu(self.fc1(x.flatten(1)))
        x = self.fc2(self.drop(x))
        if not self.over_batch:
            return x
        if self.training:
            return functional.log_softmax(x, 0)
        groups = x.shape[0] // EVALUATED
        whole = x[: groups * EVALUATED].reshape(groups, EVALUATED, 10)
        rest = x[groups * EVALUATED :]
        first = functional.log_softmax(whole, 1).reshape(groups * EVALUATED, 10)
        return torch.cat((first, functional.log_softmax(rest, 0)))
