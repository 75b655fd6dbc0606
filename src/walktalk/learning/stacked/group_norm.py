"""Group norm of images with their channels last, on a CPU: two thirds of the time that torch's own takes there.

torch's kernel is made for channels that come first, and takes three times as long where they come last; convolutions
are the other way round. Wu and He (2018), equation 1: of every sample, the channels of a group over all pixels have
mean 0 and variance 1.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class LastGroupNorm(nn.GroupNorm):
    """A `GroupNorm` that takes the fast way where images have their channels last, and torch's elsewhere."""

    def forward(self, x: Tensor) -> Tensor:
        if not has_channels_last(x):
            return functional.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)
        out: Tensor = NormedGroups.apply(x, self.weight, self.bias, self.num_groups, self.eps)  # type: ignore[no-untyped-call]
        return out


def has_channels_last(x: Tensor) -> bool:
    """Whether these are images in float32 on a CPU, channels last; with one pixel or channel both orders are one."""
    plain = x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return plain and x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def norm_groups_by_ourselves(module: nn.Module) -> None:
    """Let group norms of a module take the fast way, where it is right. The module must be nobody else's."""
    for part in module.modules():
        if type(part) is nn.GroupNorm and part.affine and is_right(part.num_channels, part.num_groups, part.eps):
            part.__class__ = LastGroupNorm


@cache
def is_right(channels: int, groups: int, eps: float) -> bool:
    """Whether outputs and gradients are torch's own.

    Tried by itself, not in a model: behind a norm there is a ReLU, and an input within rounding of 0 may fall on either
    side of it, which moves a gradient by more than anything that would be wrong here may.
    """
    numbers = torch.Generator().manual_seed(0)
    shape = (2, channels, 4, 3)
    x, gradient = (torch.randn(shape, generator=numbers).to(memory_format=torch.channels_last) for _ in range(2))
    given = [x, *torch.randn(2, channels, generator=numbers)]
    with torch.inference_mode(False), torch.enable_grad():
        leaves = [tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_() for tensor in given]
        pictures, weight, bias = leaves
        out: Tensor = NormedGroups.apply(pictures, weight, bias, groups, eps)  # type: ignore[no-untyped-call]
        ways = out, functional.group_norm(pictures, groups, weight, bias, eps)
        ours, torchs = ([way, *torch.autograd.grad(way, leaves, gradient)] for way in ways)
    return all(bool((a - b).norm() <= 1e-4 * b.norm() + 1e-6) for a, b in zip(ours, torchs, strict=True))


class NormedGroups(torch.autograd.Function):
    """Both passes, on [samples, pixels, channels].

    Everything that is one number a group is kept as one a channel, [samples, 1, channels]: so many small operations on
    fewer numbers would take longer than the images do.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
        n, c = x.shape[:2]
        pixels = x.permute(0, 2, 3, 1).view(n, -1, c)
        over_group = group_mean(c, groups, pixels.shape[1])
        mean = pixels.sum(1) @ over_group
        # Squares of differences, not the difference of squares: that has no digits left where the mean is large.
        squares = functional.mse_loss(pixels, mean.unsqueeze(1).expand_as(pixels), reduction="none")
        inverse = (squares.sum(1) @ over_group).add_(eps).rsqrt_()
        scale = inverse * weight
        shift = torch.addcmul(bias, mean, scale, value=-1.0)
        ctx.save_for_backward(pixels, weight, mean, inverse, scale, over_group)
        return images(torch.addcmul(shift.unsqueeze(1), pixels, scale.unsqueeze(1)), x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        pixels, weight, mean, inverse, scale, over_group = ctx.saved_tensors
        given = gradient.permute(0, 2, 3, 1).reshape(pixels.shape)
        for_bias = given.sum(1)
        # Of the normalized inputs: Σ g · (x − mean) / σ.
        for_weight = torch.addcmul((given * pixels).sum(1), mean, for_bias, value=-1.0).mul_(inverse)
        # What goes through the group's mean and through its variance is taken off again, the latter times (x − mean).
        through_mean = (for_bias * weight) @ over_group
        slope = ((for_weight * weight) @ over_group).mul_(inverse).mul_(inverse).neg_()
        shift = through_mean.mul_(inverse).addcmul_(mean, slope).neg_()
        for_x = torch.addcmul(shift.unsqueeze(1), given, scale.unsqueeze(1)).addcmul_(pixels, slope.unsqueeze(1))
        return images(for_x, gradient), for_weight.sum(0), for_bias.sum(0), None, None


@cache
@torch.inference_mode(False)
def group_mean(channels: int, groups: int, pixels: int) -> Tensor:
    """What makes of sums over pixels, one a channel, the mean over the channel's group."""
    each = channels // groups
    mean: Tensor = torch.block_diag(*[torch.full((each, each), 1.0 / (each * pixels)) for _ in range(groups)])
    return mean


def images(pixels: Tensor, like: Tensor) -> Tensor:
    """[samples, pixels, channels] as images of this shape, channels last."""
    n, c, high, wide = like.shape
    return pixels.view(n, high, wide, c).permute(0, 3, 1, 2)
