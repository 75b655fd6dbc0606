"""Convolutional models: ResNet-20, VGG-11, a small one for Fashion-MNIST, and the MNIST model of published tables.

ResNet-20 for 32×32 images (He et al. 2016, Section 4.2): 269,722 parameters, 1.08 MB in float32.

Shortcuts that change the shape are the paper's option A: every second pixel, new channels filled with zeros, nothing
to learn. (With 1×1 convolutions instead, option B, there would be 272,474 parameters.)
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from walktalk.core.errors import ModelError
from walktalk.core.settings import misfit

# -- Layers of our own: EvoNorm, and a linear layer with a low-rank adapter -------------------------------------------
# EvoNorm-S0 (Liu et al. 2020, "Evolving Normalization-Activation Layers") is a norm and its non-linearity in one.
#
# x · σ(v x) / √(variance of the group + ε) · γ + β. There are no statistics of a batch, and none that have to travel.

EVONORM_GROUPS = 32  # as the authors have it; fewer channels are a group each


class EvoNorm(nn.Module):
    """A layer in place of a normalization and the ReLU behind it."""

    def __init__(self, channels: int, groups: int = EVONORM_GROUPS, *, slope: bool = True, eps: float = 1e-5) -> None:
        """channels: C of [B, C, …]. groups: of channels, whose variance is taken. slope: whether v is learned, or 1."""
        super().__init__()
        self.groups, self.eps = min(groups, channels), eps
        if channels % self.groups:
            raise ValueError(f"{channels} channels cannot be cut into {self.groups} groups")
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.slope = nn.Parameter(torch.ones(channels)) if slope else None

    def forward(self, x: Tensor) -> Tensor:
        return evo_norm(x, self.groups, self.weight, self.bias, self.slope, self.eps)


def evo_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, slope: Tensor | None, eps: float) -> Tensor:
    """EvoNorm of [B, C, …] with tensors [C]; many models side by side in the channels have so many times the groups."""
    apart = x.float().unflatten(1, (groups, -1))  # a variance in 16 bits would be off by a quarter of a per cent
    spread = (apart.var(tuple(range(2, apart.dim())), correction=0, keepdim=True) + eps).rsqrt()
    shape = (-1, *[1] * (x.dim() - 2))
    swish = nn.functional.silu(x) if slope is None else x * torch.sigmoid(slope.view(shape).to(x.dtype) * x)
    normal = (swish.unflatten(1, (groups, -1)) * spread.to(x.dtype)).flatten(1, 2)
    out: Tensor = normal * weight.view(shape).to(x.dtype) + bias.view(shape).to(x.dtype)
    return out


# A frozen linear layer with a low-rank adapter (Hu et al. 2021): W x + (α / r) · B A x.

Mixing: TypeAlias = Literal["factors", "freeze-a", "product"]


class LoraLinear(nn.Module):
    """A frozen linear layer and its adapter."""

    def __init__(
        self, base: nn.Module, rank: int, scaling: float, dropout: float = 0.0, mixing: Mixing = "factors"
    ) -> None:
        super().__init__()
        entering, leaving = features_of(base)
        self.base_layer = base
        self.lora_dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        weight: Any = base.weight
        self.lora_A = nn.Linear(entering, rank, bias=False, device=weight.device)
        self.lora_B = nn.Linear(rank, leaving, bias=False, device=weight.device)
        self.lora_A.weight.requires_grad_(mixing != "freeze-a")
        self.scaling, self.mixing = scaling, mixing
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Starts afresh as in the paper and in peft: A at random, B zero, so that training starts at the base."""
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base_layer(x)
        change: Tensor = self.lora_B(self.lora_A(self.lora_dropout(x).to(self.lora_A.weight.dtype)))
        return out + (self.scaling * change).to(out.dtype)

    def product(self) -> Tensor:
        """The product that is added to the weight, in its own layout."""
        change = self.scaling * (self.lora_B.weight @ self.lora_A.weight)
        return change if isinstance(self.base_layer, nn.Linear) else change.T


def features_of(layer: nn.Module) -> tuple[int, int]:
    """How many features enter and leave a linear layer; GPT-2's own kind has its weight the other way round."""
    weight: Any = layer.weight
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    return int(weight.shape[0]), int(weight.shape[1])


# -- Convolutional models: ResNet-20, VGG-11, a small one for Fashion-MNIST, and the MNIST model of published tables --

Norm: TypeAlias = Literal["batch", "group", "evonorm"]
GROUPS = 8  # of a group norm: at least two channels each, down to the 16 of the first stage


def resnet20(classes: int = 10, norm: Norm = "batch", channels: int = 3, groups: int = GROUPS) -> nn.Module:
    """ResNet-20: three stages of three blocks, 16, 32 and 64 channels.

    groups: of a group norm, a divisor of 16.

    evonorm: as the code of quasi-global momentum has it (Lin et al. 2021): EvoNorm-S0 with v = 1 in place of a
    normalization and its ReLU; before a sum, which has its ReLU behind it, batch norm by the batch's own statistics.
    """
    if norm not in get_args(Norm):
        raise misfit("norm", norm, ", ".join(get_args(Norm)), ModelError)
    if groups < 1 or 16 % groups:
        raise misfit("groups", groups, "1, 2, 4, 8 or 16, by which 16 channels can be divided", ModelError)
    blocks: list[nn.Module] = []
    entering = 16
    for width, stride in ((16, 1), (32, 2), (64, 2)):
        for k in range(3):
            blocks.append(Block(entering, width, stride if k == 0 else 1, norm, groups))
            entering = width
    return nn.Sequential(
        Convolution(channels, 16, 3, padding=1, bias=False),
        normalization(norm, 16, groups),
        *([] if norm == "evonorm" else [nn.ReLU()]),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


class Convolution(nn.Conv2d):
    """A convolution that starts as He et al. (2015) have it: normal, with variance 2 over the fan-in."""

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")


def normalization(norm: Norm, channels: int, groups: int, before_sum: bool = False) -> nn.Module:
    if norm == "evonorm":
        return nn.BatchNorm2d(channels, track_running_stats=False) if before_sum else EvoNorm(channels, slope=False)
    return nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(groups, channels)


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut around them."""

    def __init__(self, entering: int, leaving: int, stride: int, norm: Norm, groups: int) -> None:
        super().__init__()
        self.conv1 = Convolution(entering, leaving, 3, stride, padding=1, bias=False)
        self.norm1 = normalization(norm, leaving, groups)
        self.conv2 = Convolution(leaving, leaving, 3, padding=1, bias=False)
        self.norm2 = normalization(norm, leaving, groups, before_sum=True)
        self.bends = norm == "evonorm"  # whether the first norm has a non-linearity of its own
        same = entering == leaving and stride == 1
        self.shortcut: nn.Module = nn.Identity() if same else PaddedShortcut(entering, leaving, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm1(self.conv1(x))
        if not self.bends:
            out = functional.relu(out)
        out = self.norm2(self.conv2(out))
        return functional.relu(out + self.shortcut(x))


class PaddedShortcut(nn.Module):
    """Option A: every `stride`-th pixel, and zeros for the new channels, half before and half after the old ones."""

    def __init__(self, entering: int, leaving: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.before = (leaving - entering) // 2
        self.after = leaving - entering - self.before

    def forward(self, x: Tensor) -> Tensor:
        return functional.pad(x[..., :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))

    def stacked(self, x: Tensor, rows: int, channels_last: bool) -> Tensor:
        """The shortcut for rows side by side in the channels, [B, W·C, H, W]."""
        picked = x[:, :, :: self.stride, :: self.stride]
        b, wc, h, w = picked.shape
        old = wc // rows
        new = self.before + old + self.after
        layout = torch.channels_last if channels_last else torch.contiguous_format
        out = torch.empty((b, rows * new, h, w), dtype=x.dtype, device=x.device, memory_format=layout).zero_()
        out.unflatten(1, (rows, new))[:, :, self.before : self.before + old] = picked.unflatten(1, (rows, old))
        return out


# VGG-11 (Simonyan and Zisserman 2015) for 32×32 images, without norm, as papers on decentralized learning have it.

LAYERS = ((64, True), (128, True), (256, False), (256, True), (512, False), (512, True), (512, False), (512, True))


def vgg11(classes: int = 10, width: float = 1.0) -> nn.Module:
    """VGG-11: 9,750,922 parameters for ten classes; dropout between the linear layers.

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


# A small convolutional network for 28×28 images in one channel: two convolutions, one hidden layer.


def small_conv(classes: int = 10) -> nn.Module:
    """A small convolutional model for Fashion-MNIST: 28,938 parameters."""
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


# The small network of a published comparison on MNIST (You and Pu 2024, code ryou98/BTPP), its last line included.

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
