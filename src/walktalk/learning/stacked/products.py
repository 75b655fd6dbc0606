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
        for_weight = torch.bmm(gradient.transpose(1, 2), x) if ctx.needs_input_grad[1] else None
        for_bias = gradient.sum(1, dtype=torch.float32) if ctx.has_bias and ctx.needs_input_grad[2] else None
        return for_x, for_weight, for_bias


def batched_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Of inputs [W, …, in] with weights [W, out, in] and biases [W, out]."""
    if len(x) == 1 and not x.is_cuda:
        # The same products without Python on the way back. Torch's own layer, with the bias inside of the product,
        # rounds otherwise, and a model alone must be what it is in a wave.
        single = functional.linear(x, weight.squeeze(0))
        return single if bias is None else single.add_(bias.squeeze(0))
    flat = x.reshape(len(x), -1, x.shape[-1])
    out: Tensor = BatchedLinear.apply(flat, weight, bias)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], -1)


class BatchedAdapter(torch.autograd.Function):
    """out + s · x Aᵀ Bᵀ for every row: a frozen layer's outputs, with each row's own adapter added in the product."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, x: Tensor, a: Tensor, b: Tensor, scaling: float) -> Tensor:
        x, a, b = (t.to(out.dtype) for t in (x, a, b))
        inside = torch.bmm(x, a.transpose(1, 2))
        ctx.save_for_backward(x, inside, a, b)
        ctx.scaling = scaling
        return torch.baddbmm(out, inside, b.transpose(1, 2), alpha=scaling)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, inside, a, b = ctx.saved_tensors
        for_inside = torch.bmm(gradient, b).mul_(ctx.scaling)
        for_x = torch.bmm(for_inside, a) if ctx.needs_input_grad[1] else None
        for_a = torch.bmm(for_inside.transpose(1, 2), x) if ctx.needs_input_grad[2] else None
        for_b = torch.bmm(gradient.transpose(1, 2), inside).mul_(ctx.scaling) if ctx.needs_input_grad[3] else None
        return gradient, for_x, for_a, for_b, None


def batched_adapter(out: Tensor, x: Tensor, a: Tensor, b: Tensor, scaling: float) -> Tensor:
    """Of a frozen layer's outputs [W·n, …, out] and inputs [W·n, …, in], with factors [W, r, in] and [W, out, r]."""
    rows = len(a)
    flat_out, flat = (t.reshape(rows, -1, t.shape[-1]) for t in (out, x))
    if torch.compiler.is_compiling():  # which finds a backward pass by itself, and fuses the sum with what comes next
        inside = torch.bmm(flat.to(out.dtype), a.to(out.dtype).transpose(1, 2)) * scaling
        return (flat_out + torch.bmm(inside, b.to(out.dtype).transpose(1, 2))).view(out.shape)
    made: Tensor = BatchedAdapter.apply(flat_out, flat, a, b, scaling)  # type: ignore[no-untyped-call]
    return made.view(out.shape)
