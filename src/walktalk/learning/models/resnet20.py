"""ResNet-20 for 32×32 images (He et al. 2016, Section 4.2): 269,722 parameters, 1.08 MB in float32.

Shortcuts that change the shape are the paper's option A: every second pixel, new channels filled with zeros, nothing
to learn. (With 1×1 convolutions instead, option B, there would be 272,474 parameters.)
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from walktalk.errors import ModelError
from walktalk.learning.models.evonorm import EvoNorm

Norm: TypeAlias = Literal["batch", "group", "evonorm"]
GROUPS = 8  # of a group norm: at least two channels each, down to the 16 of the first stage


def resnet20(classes: int = 10, norm: Norm = "batch", channels: int = 3, groups: int = GROUPS) -> nn.Module:
    """Three stages of three blocks, 16, 32 and 64 channels.

    groups: of a group norm, a divisor of 16.

    evonorm: as the code of quasi-global momentum has it (Lin et al. 2021): EvoNorm-S0 with v = 1 in place of a
    normalization and its ReLU; before a sum, which has its ReLU behind it, batch norm by the batch's own statistics.
    """
    if norm not in get_args(Norm):
        raise ModelError(f"norm: {norm!r} is unknown; allowed: {', '.join(get_args(Norm))}")
    if groups < 1 or 16 % groups:
        raise ModelError(f"groups: {groups} is not possible; 16 channels are divided by 1, 2, 4, 8 or 16")
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
        """The same for rows side by side in the channels, [B, W·C, H, W]."""
        picked = x[:, :, :: self.stride, :: self.stride]
        b, wc, h, w = picked.shape
        old = wc // rows
        new = self.before + old + self.after
        layout = torch.channels_last if channels_last else torch.contiguous_format
        out = torch.empty((b, rows * new, h, w), dtype=x.dtype, device=x.device, memory_format=layout).zero_()
        out.unflatten(1, (rows, new))[:, :, self.before : self.before + old] = picked.unflatten(1, (rows, old))
        return out
