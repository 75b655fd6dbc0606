"""Convolution, group norm and ReLU as one step of autograd, alone or as a residual block of two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walktalk.core.lazy import later
from walktalk.learning.kernels import launch, pool
from walktalk.learning.kernels.batch_norm import BatchNormSettings, Places, Running, convolved
from walktalk.learning.kernels.tiles import order

norm_kernels = later("walktalk.learning.kernels.norm_kernels")

TILE = 4096  # numbers that a program has in hand at a time


class GroupNormalized(NamedTuple):
    """A group norm at work."""

    gamma: Tensor  # [W, C]
    mean: Tensor  # [W, B, C]: of each channel's group
    inverse: Tensor
    groups: int


def normalize(
    y: Tensor, gamma: Tensor, beta: Tensor, groups: int, eps: float, around: Tensor | None, new_before: int
) -> tuple[Tensor, GroupNormalized]:
    """relu(norm(y)), plus what came around by a shortcut: as it is, or with every second pixel and new channels."""
    rows, b, ho, wo, channels = y.shape
    z = torch.empty_like(y)
    mean, inverse = torch.empty((2, rows, b, channels), device=y.device)
    kind = "none" if around is None else "same" if around.shape == y.shape else "padded"
    side, gamma = y if around is None else around, gamma.contiguous()
    norm_kernels.group_normalize[(b, rows)](
        y,
        gamma,
        beta.contiguous(),
        side,
        z,
        mean,
        inverse,
        b,
        eps,
        order.next(),
        ho,
        wo,
        side.shape[2],
        side.shape[3],
        channels,
        groups,
        kind,
        side.shape[4],
        new_before,
        TILE // channels,
    )
    return z, GroupNormalized(gamma, mean, inverse, groups)


def normalize_backward(dz: Tensor, z: Tensor, y: Tensor, norm: GroupNormalized) -> tuple[Tensor, Tensor]:
    """The gradient for y, and those for β and γ, [2, W, C]."""
    rows, b, ho, wo, channels = y.shape
    dy = torch.empty_like(y)
    partials = torch.empty((rows, b, 2, channels), device=y.device)
    norm_kernels.group_backward[(b, rows)](
        dz,
        z,
        y,
        norm.gamma,
        norm.mean,
        norm.inverse,
        dy,
        partials,
        b,
        ho * wo,
        order.next(),
        channels,
        norm.groups,
        TILE // channels,
    )
    return dy, launch.sums(partials)


@dataclass(frozen=True)
class GroupNormSettings:
    """What a convolution with its group norm needs beside tensors."""

    stride: int
    groups: int
    eps: float
    pooled: bool = False  # whether there are 2×2 maxima between the convolution and its norm


class ConvGroupNorm(torch.autograd.Function):
    """relu(norm(conv(x) + bias)), x as [W, B, H, W', C]; the norm is of 2×2 maxima if the settings say so."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        gamma: Tensor,
        beta: Tensor,
        settings: GroupNormSettings,
        into: Tensor | None,
    ) -> Tensor:
        taps = launch.as_taps(weight, x.dtype, x.shape[4])
        y, _ = launch.forward(x, taps, settings.stride, False, bias)
        seen = pool.pooled(y) if settings.pooled else y
        z, norm = normalize(seen, gamma, beta, settings.groups, settings.eps, None, 0)
        ctx.save_for_backward(x, taps, y, seen, z)
        ctx.norm, ctx.settings, ctx.shape, ctx.has_bias = norm, settings, weight.shape, bias is not None
        ctx.into = into
        return z

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        x, taps, y, seen, z = ctx.saved_tensors
        stride = ctx.settings.stride
        dy, totals = normalize_backward(dz.contiguous(), z, seen, ctx.norm)
        if ctx.settings.pooled:
            dy, for_bias = pool.backward(dy, y, True, relu=False, with_sums=ctx.has_bias)
        else:
            for_bias = dy.sum((1, 2, 3), dtype=torch.float32) if ctx.has_bias else None
        dw = launch.for_weights(x, dy, stride, ctx.shape, ctx.into)
        dx = launch.for_input(dy, taps, x.shape, stride)[0] if ctx.needs_input_grad[0] else None
        return dx, dw, for_bias, totals[1], totals[0], None, None


class GroupNormBlock(torch.autograd.Function):
    """A residual block with group norms: relu(norm(conv(relu(norm(conv(x))))) + shortcut(x))."""

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
        stride: int,
        groups: tuple[int, int],
        eps: tuple[float, float],
        new_before: int,
        into: Places,
    ) -> Tensor:
        taps1, taps2 = (launch.as_taps(w, x.dtype, w.shape[2]) for w in (weight1, weight2))
        y1, _ = launch.forward(x, taps1, stride, False)
        a1, norm1 = normalize(y1, gamma1, beta1, groups[0], eps[0], None, 0)
        y2, _ = launch.forward(a1, taps2, 1, False)
        z, norm2 = normalize(y2, gamma2, beta2, groups[1], eps[1], x, new_before)
        ctx.save_for_backward(x, taps1, y1, a1, taps2, y2, z)
        ctx.norms, ctx.stride, ctx.new_before = (norm1, norm2), stride, new_before
        ctx.shapes, ctx.into = (weight1.shape, weight2.shape), into
        return z

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        x, taps1, y1, a1, taps2, y2, z = ctx.saved_tensors
        dz = dz.contiguous()
        dy2, totals2 = normalize_backward(dz, z, y2, ctx.norms[1])
        dw2 = launch.for_weights(a1, dy2, 1, ctx.shapes[1], ctx.into[1])
        da1, _ = launch.for_input(dy2, taps2, a1.shape, 1)
        dy1, totals1 = normalize_backward(da1, a1, y1, ctx.norms[0])
        dw1 = launch.for_weights(x, dy1, ctx.stride, ctx.shapes[0], ctx.into[0])
        dx, _ = launch.for_input(dy1, taps1, x.shape, ctx.stride, around=(dz, z, ctx.new_before))
        return dx, dw1, totals1[1], totals1[0], dw2, totals2[1], totals2[0], None, None, None, None, None


# Convolution and EvoNorm as one step of autograd, and the end of a residual block that begins with one.


class ConvEvoNorm(torch.autograd.Function):
    """evonorm(conv(x)), x as [W, B, H, W', C]; `into`: where the gradient for the weights is to be, if given."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        gamma: Tensor,
        beta: Tensor,
        settings: GroupNormSettings,
        into: Tensor | None,
    ) -> Tensor:
        taps, gamma = launch.as_taps(weight, x.dtype, x.shape[4]), gamma.contiguous()
        y, _ = launch.forward(x, taps, settings.stride, False)
        rows, b, ho, wo, channels = y.shape
        z = torch.empty_like(y)
        mean, inverse = torch.empty((2, rows, b, channels), device=y.device)
        sizes = channels, settings.groups, TILE // channels
        norm_kernels.evo_normalize[(b, rows)](
            y, gamma, beta.contiguous(), z, mean, inverse, b, ho * wo, settings.eps, order.next(), *sizes
        )
        ctx.save_for_backward(x, taps, y, gamma, mean, inverse)
        ctx.stride, ctx.sizes, ctx.shape, ctx.into = settings.stride, sizes, weight.shape, into
        return z

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        x, taps, y, gamma, mean, inverse = ctx.saved_tensors
        rows, b, ho, wo, channels = y.shape
        dy = torch.empty_like(y)
        partials = torch.empty((rows, b, 2, channels), device=y.device)
        norm_kernels.evo_backward[(b, rows)](
            dz.contiguous(), y, gamma, mean, inverse, dy, partials, b, ho * wo, order.next(), *ctx.sizes
        )
        for_beta, for_gamma = launch.sums(partials)
        dw = launch.for_weights(x, dy, ctx.stride, ctx.shape, ctx.into)
        dx = launch.for_input(dy, taps, x.shape, ctx.stride)[0] if ctx.needs_input_grad[0] else None
        return dx, dw, for_gamma, for_beta, None, None


class BlockEnd(torch.autograd.Function):
    """relu(norm(conv(x)) + shortcut(around)), with a batch norm."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        gamma: Tensor,
        beta: Tensor,
        around: Tensor,
        running: Running,
        settings: BatchNormSettings,
        into: Tensor | None,
    ) -> Tensor:
        taps = launch.as_taps(weight, x.dtype, x.shape[4])
        y, norm = convolved(x, taps, gamma, beta, running, settings)
        z = launch.normalize(y, norm, around, settings.new_before)
        ctx.save_for_backward(x, taps, y, z)
        ctx.norm, ctx.settings, ctx.shape, ctx.into, ctx.around = norm, settings, weight.shape, into, around.shape
        return z

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        x, taps, y, z = ctx.saved_tensors
        dz, stride = dz.contiguous(), ctx.settings.stride
        totals = launch.gradient_sums(dz, z, y, ctx.norm)
        dy = launch.normalize_backward(dz, z, y, ctx.norm, totals)
        dw = launch.for_weights(x, dy, stride, ctx.shape, ctx.into)
        dx = launch.for_input(dy, taps, x.shape, stride)[0]
        for_around = came_around(dz * (z > 0), ctx.around, ctx.settings.new_before)
        return dx, dw, totals[1], totals[0], for_around, None, None, None


def came_around(gradient: Tensor, shape: torch.Size, new_before: int) -> Tensor:
    """The gradient for what went around, as it is or by every second pixel and with new channels."""
    if gradient.shape == shape:
        return gradient
    out = torch.zeros(shape, dtype=gradient.dtype, device=gradient.device)
    out[:, :, ::2, ::2] = gradient[..., new_before : new_before + shape[4]]
    return out
