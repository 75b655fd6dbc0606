"""Convolution, group norm and ReLU as one step of autograd, alone or as a residual block of two."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from walktalk.learning.stacked.fused import group_kernels, launch

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
    group_kernels.group_normalize[(b, rows)](
        y,
        gamma,
        beta.contiguous(),
        side,
        z,
        mean,
        inverse,
        b,
        eps,
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
    group_kernels.group_backward[(b, rows)](
        dz, z, y, norm.gamma, norm.mean, norm.inverse, dy, partials, b, ho * wo, channels, norm.groups, TILE // channels
    )
    return dy, launch.sums(partials)


class GroupLayer(torch.autograd.Function):
    """relu(norm(conv(x))), x as [W, B, H, W', C]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, stride: int, groups: int, eps: float
    ) -> Tensor:
        taps = launch.as_taps(weight, x.dtype, x.shape[4])
        y, _ = launch.forward(x, taps, stride, False)
        z, norm = normalize(y, gamma, beta, groups, eps, None, 0)
        ctx.save_for_backward(x, taps, y, z)
        ctx.norm, ctx.stride, ctx.channels = norm, stride, weight.shape[2]
        return z

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, taps, y, z = ctx.saved_tensors
        dy, totals = normalize_backward(dz.contiguous(), z, y, ctx.norm)
        dw = launch.for_weights(x, dy, ctx.stride, ctx.channels)
        dx = launch.for_input(dy, taps, x.shape, ctx.stride)[0] if ctx.needs_input_grad[0] else None
        return dx, dw, totals[1], totals[0], None, None, None


class GroupBlock(torch.autograd.Function):
    """relu(norm(conv(relu(norm(conv(x))))) + shortcut(x))."""

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
    ) -> Tensor:
        taps1, taps2 = (launch.as_taps(w, x.dtype, w.shape[2]) for w in (weight1, weight2))
        y1, _ = launch.forward(x, taps1, stride, False)
        a1, norm1 = normalize(y1, gamma1, beta1, groups[0], eps[0], None, 0)
        y2, _ = launch.forward(a1, taps2, 1, False)
        z, norm2 = normalize(y2, gamma2, beta2, groups[1], eps[1], x, new_before)
        ctx.save_for_backward(x, taps1, y1, a1, taps2, y2, z)
        ctx.norms, ctx.stride, ctx.new_before = (norm1, norm2), stride, new_before
        return z

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, taps1, y1, a1, taps2, y2, z = ctx.saved_tensors
        dz = dz.contiguous()
        entering, leaving = taps1.shape[2:]
        dy2, totals2 = normalize_backward(dz, z, y2, ctx.norms[1])
        dw2 = launch.for_weights(a1, dy2, 1, leaving)
        da1, _ = launch.for_input(dy2, taps2, a1.shape, 1)
        dy1, totals1 = normalize_backward(da1, a1, y1, ctx.norms[0])
        dw1 = launch.for_weights(x, dy1, ctx.stride, entering)
        dx, _ = launch.for_input(dy1, taps1, x.shape, ctx.stride, around=(dz, z, ctx.new_before))
        return dx, dw1, totals1[1], totals1[0], dw2, totals2[1], totals2[0], None, None, None, None
