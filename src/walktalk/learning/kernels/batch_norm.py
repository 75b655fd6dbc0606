"""Convolution, batch norm and ReLU as one step of autograd, alone or as a residual block of two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from walktalk.learning.kernels import launch, pool
from walktalk.learning.kernels.tiles import Normalized


@dataclass(frozen=True)
class BatchNormSettings:
    """What a convolution with its norm needs beside tensors."""

    stride: int
    eps: float
    momentum: float
    new_before: int = 0  # of a padded shortcut: new channels before the old ones
    pooled: bool = False  # whether 2×2 maxima follow


Running = tuple[Tensor, Tensor] | None
Places = tuple[Tensor | None, Tensor | None]  # where the gradients for the weights of a block are to be, if given


class ConvBatchNorm(torch.autograd.Function):
    """relu(norm(conv(x))), x as [W, B, H, W', C], and 2×2 maxima of it if the settings say so.

    A bias in front of a norm has a gradient of zero. `into`: where the gradient for the weights is to be, if given.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        gamma: Tensor,
        beta: Tensor,
        running: Running,
        settings: BatchNormSettings,
        into: Tensor | None,
    ) -> Tensor:
        taps = launch.as_taps(weight, x.dtype, x.shape[4])
        y, norm = convolved(x, taps, gamma, beta, running, settings, bias)
        z = pool.normalized(y, norm) if settings.pooled else launch.normalize(y, norm, None, 0)
        ctx.save_for_backward(x, taps, y, z)
        ctx.norm, ctx.settings, ctx.shape, ctx.into = norm, settings, weight.shape, into
        ctx.bias = None if bias is None else bias.shape
        return z

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        x, taps, y, z = ctx.saved_tensors
        dz = dz.contiguous()
        if ctx.settings.pooled:
            dy, totals = pool.normalized_backward(dz, y, ctx.norm)
        else:
            totals = launch.gradient_sums(dz, z, y, ctx.norm)
            dy = launch.normalize_backward(dz, z, y, ctx.norm, totals)
        dw = launch.for_weights(x, dy, ctx.settings.stride, ctx.shape, ctx.into)
        dx = launch.for_input(dy, taps, x.shape, ctx.settings.stride)[0] if ctx.needs_input_grad[0] else None
        for_bias = None if ctx.bias is None else torch.zeros(ctx.bias, device=x.device)
        return dx, dw, for_bias, totals[1], totals[0], None, None, None


class ConvReLU(torch.autograd.Function):
    """relu(conv(x) + bias), x as [W, B, H, W', C], and 2×2 maxima of it if `pooled`; `into` as in `ConvBatchNorm`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, stride: int, pooled: bool, into: Tensor | None
    ) -> Tensor:
        taps = launch.as_taps(weight, x.dtype, x.shape[4])
        y, _ = launch.forward(x, taps, stride, False, bias, True)
        ctx.save_for_backward(x, taps, y)
        ctx.stride, ctx.pooled, ctx.shape, ctx.into = stride, pooled, weight.shape, into
        ctx.has_bias = bias is not None
        return pool.pooled(y) if pooled else y

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        x, taps, y = ctx.saved_tensors
        dy, for_bias = pool.backward(dz.contiguous(), y, ctx.pooled, relu=True, with_sums=ctx.has_bias)
        dw = launch.for_weights(x, dy, ctx.stride, ctx.shape, ctx.into)
        dx = launch.for_input(dy, taps, x.shape, ctx.stride)[0] if ctx.needs_input_grad[0] else None
        return dx, dw, for_bias, None, None, None


class BatchNormBlock(torch.autograd.Function):
    """A residual block with batch norms: relu(norm(conv(relu(norm(conv(x))))) + shortcut(x))."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight1: Tensor,
        gamma1: Tensor,
        beta1: Tensor,
        weight2: Tensor,
        gamma2: Tensor,
        beta2: Tensor,
        running1: Running,
        running2: Running,
        first: BatchNormSettings,
        second: BatchNormSettings,
        into: Places,
    ) -> Tensor:
        taps1, taps2 = (launch.as_taps(w, x.dtype, w.shape[2]) for w in (weight1, weight2))
        y1, norm1 = convolved(x, taps1, gamma1, beta1, running1, first)
        a1 = launch.normalize(y1, norm1, None, 0)
        y2, norm2 = convolved(a1, taps2, gamma2, beta2, running2, second)
        z = launch.normalize(y2, norm2, x, second.new_before)
        ctx.save_for_backward(x, taps1, y1, a1, taps2, y2, z)
        ctx.norms, ctx.settings, ctx.shapes = (norm1, norm2), (first, second), (weight1.shape, weight2.shape)
        ctx.into = into
        return z

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        x, taps1, y1, a1, taps2, y2, z = ctx.saved_tensors
        (norm1, norm2), (first, second) = ctx.norms, ctx.settings
        dz = dz.contiguous()
        totals2 = launch.gradient_sums(dz, z, y2, norm2)
        dy2 = launch.normalize_backward(dz, z, y2, norm2, totals2)
        dw2 = launch.for_weights(a1, dy2, 1, ctx.shapes[1], ctx.into[1])
        g1, totals1 = launch.for_input(dy2, taps2, y1.shape, 1, before=(y1, norm1))
        assert totals1 is not None
        dy1 = launch.normalize_backward(g1, None, y1, norm1, totals1)
        dw1 = launch.for_weights(x, dy1, first.stride, ctx.shapes[0], ctx.into[0])
        dx, _ = launch.for_input(dy1, taps1, x.shape, first.stride, around=(dz, z, second.new_before))
        return dx, dw1, totals1[1], totals1[0], dw2, totals2[1], totals2[0], None, None, None, None, None


def convolved(
    x: Tensor,
    taps: Tensor,
    gamma: Tensor,
    beta: Tensor,
    running: Running,
    settings: BatchNormSettings,
    bias: Tensor | None = None,
) -> tuple[Tensor, Normalized]:
    """A convolution in training, and the normalization by its own statistics."""
    y, partials = launch.forward(x, taps, settings.stride, True, bias)
    assert partials is not None
    pixels = y[0, ..., 0].numel()
    return y, launch.statistics(partials, gamma, beta, pixels, settings.eps, settings.momentum, running)


def evaluated(
    x: Tensor,
    weight: Tensor,
    gamma: Tensor,
    beta: Tensor,
    running: tuple[Tensor, Tensor],
    settings: BatchNormSettings,
    around: Tensor | None,
    bias: Tensor | None = None,
) -> Tensor:
    """Convolution, norm and ReLU in evaluation: normalized by running statistics, no gradient."""
    y, _ = launch.forward(x, launch.as_taps(weight, x.dtype, x.shape[4]), settings.stride, False, bias)
    mean, var = running
    inverse = (var + settings.eps).rsqrt()
    scale = (gamma * inverse).contiguous()
    norm = Normalized(scale, (beta - mean * scale).contiguous(), mean, inverse)
    return pool.normalized(y, norm) if settings.pooled else launch.normalize(y, norm, around, settings.new_before)
