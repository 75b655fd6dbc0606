"""Linear layers of many models as batched matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class BatchedLinear(torch.autograd.Function):
    """x Wᵀ + b for every row. Autograd's own backward would leave the weight's gradient transposed in memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if torch.is_autocast_enabled(x.device.type):  # torch casts in its own functions only
            half = torch.get_autocast_dtype(x.device.type)
            x, weight, bias = x.to(half), weight.to(half), None if bias is None else bias.to(half)
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        if bias is None:
            return torch.bmm(x, weight.transpose(1, 2))
        if x.is_cuda:
            return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
        return torch.bmm(x, weight.transpose(1, 2)).add_(bias.unsqueeze(1))  # on a CPU two thirds of the time

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        for_x = torch.bmm(gradient, weight) if ctx.needs_input_grad[0] else None
        for_bias = gradient.sum(1, dtype=torch.float32) if ctx.has_bias else None
        return for_x, torch.bmm(gradient.transpose(1, 2), x), for_bias


def batched_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Of inputs [W, …, in] with weights [W, out, in] and biases [W, out]."""
    if len(x) == 1 and not x.is_cuda:
        # Torch's own is as fast as can be, and needs no Python on the way back. On a GPU it rounds otherwise in 16
        # bits, and a model alone must be what it is in a wave.
        single = functional.linear(x.squeeze(0), weight.squeeze(0), None if bias is None else bias.squeeze(0))
        return single.unsqueeze(0)
    flat = x.reshape(len(x), -1, x.shape[-1])
    out: Tensor = BatchedLinear.apply(flat, weight, bias)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], -1)
