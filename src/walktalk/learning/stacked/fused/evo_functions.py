"""Convolution and EvoNorm as one step of autograd, and the end of a residual block that begins with one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from walktalk.learning.stacked.fused import evo_kernels, launch
from walktalk.learning.stacked.fused.functions import Running, Settings, convolved
from walktalk.learning.stacked.fused.group_functions import TILE, GroupSettings
from walktalk.learning.stacked.fused.tiles import order


class EvoLayer(torch.autograd.Function):
    """evonorm(conv(x)), x as [W, B, H, W', C]; `into`: where the gradient for the weights is to be, if given."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, gamma: Tensor, beta: Tensor, settings: GroupSettings, into: Tensor | None
    ) -> Tensor:
        taps, gamma = launch.as_taps(weight, x.dtype, x.shape[4]), gamma.contiguous()
        y, _ = launch.forward(x, taps, settings.stride, False)
        rows, b, ho, wo, channels = y.shape
        z = torch.empty_like(y)
        mean, inverse = torch.empty((2, rows, b, channels), device=y.device)
        sizes = channels, settings.groups, TILE // channels
        evo_kernels.evo_normalize[(b, rows)](
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
        evo_kernels.evo_backward[(b, rows)](
            dz.contiguous(), y, gamma, mean, inverse, dy, partials, b, ho * wo, order.next(), *ctx.sizes
        )
        for_beta, for_gamma = launch.sums(partials)
        dw = launch.for_weights(x, dy, ctx.stride, ctx.shape, ctx.into)
        dx = launch.for_input(dy, taps, x.shape, ctx.stride)[0] if ctx.needs_input_grad[0] else None
        return dx, dw, for_gamma, for_beta, None, None


class Ending(torch.autograd.Function):
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
        settings: Settings,
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
