"""Linear layers of many models as batched matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from walktalk.learning.kernels import layer_norm as fused_layer_norm
from walktalk.learning.stacked.fused import has_token_kernel
from walktalk.learning.stacked.tensors import StackedTensor


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
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x = torch.bmm(gradient, weight) if ctx.needs_input_grad[0] else None
        for_weight = torch.bmm(gradient.transpose(1, 2), x) if ctx.needs_input_grad[1] else None
        for_bias = gradient.sum(1, dtype=torch.float32) if ctx.has_bias and ctx.needs_input_grad[2] else None
        return for_x, for_weight, for_bias


def batched_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear layer of inputs [W, …, in] with weights [W, out, in] and biases [W, out]."""
    if len(x) == 1 and not x.is_cuda:
        # The same products without Python on the way back. Torch's own layer, with the bias inside of the product,
        # rounds otherwise, and a model alone must be what it is in a wave.
        single = functional.linear(x, weight.squeeze(0))
        return single if bias is None else single.add_(bias.squeeze(0))
    flat = x.reshape(len(x), -1, x.shape[-1])
    out: Tensor = BatchedLinear.apply(flat, weight, bias)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], -1)


class FoldedLinear(torch.autograd.Function):
    """(x · s + t) Wᵀ + b for every row, as x (W · s)ᵀ + (W t + b): s and t are a layer norm's, [W, in].

    Of many samples this saves two passes over them and five on the way back; what is done instead is done to weights.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        scaled = weight * scale.unsqueeze(1)
        ctx.save_for_backward(x, scale, shift, weight, scaled)
        ctx.has_bias = bias is not None
        # By a sum, and no product with a vector, whose bits depend on how many there are.
        added = None if shift is None else (weight * shift.unsqueeze(1)).sum(2)
        added = bias if added is None else added if bias is None else added.add_(bias)
        out = product(x, scaled.transpose(1, 2))
        return out if added is None else out.add_(added.unsqueeze(1))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, shift, weight, scaled = ctx.saved_tensors
        for_x = product(gradient, scaled) if ctx.needs_input_grad[0] else None
        for_bias, for_shift = None, None
        if ctx.has_bias or shift is not None:
            for_bias = gradient.sum(1)
        for_scaled = product(gradient.transpose(1, 2), x)
        for_scale = (for_scaled * weight).sum(1) if ctx.needs_input_grad[1] else None
        if shift is not None and for_bias is not None:
            for_shift = (weight * for_bias.unsqueeze(2)).sum(1) if ctx.needs_input_grad[2] else None
            for_scaled = for_scaled.mul_(scale.unsqueeze(1)).addcmul_(for_bias.unsqueeze(2), shift.unsqueeze(1))
        else:
            for_scaled = for_scaled.mul_(scale.unsqueeze(1))
        return for_x, for_scale, for_shift, for_scaled, for_bias if ctx.has_bias else None


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b of matrices [W, …]; of one pair by the shorter way, whose bits are the same."""
    return torch.mm(a[0], b[0]).unsqueeze(0) if len(a) == 1 else torch.bmm(a, b)


def linear_of(x: StackedTensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`batched_linear` of an activation, with what a layer norm has left to do."""
    inputs = x.stacked()
    if x.left is None:
        return batched_linear(inputs, weight, bias)
    flat = inputs.reshape(len(inputs), -1, inputs.shape[-1])
    out: Tensor = FoldedLinear.apply(flat, *x.left, weight, bias)  # type: ignore[no-untyped-call]
    return out.view(*inputs.shape[:-1], -1)


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
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, inside, a, b = ctx.saved_tensors
        for_inside = torch.bmm(gradient, b).mul_(ctx.scaling)
        for_x = torch.bmm(for_inside, a) if ctx.needs_input_grad[1] else None
        for_a = torch.bmm(for_inside.transpose(1, 2), x) if ctx.needs_input_grad[2] else None
        for_b = torch.bmm(gradient.transpose(1, 2), inside).mul_(ctx.scaling) if ctx.needs_input_grad[3] else None
        return gradient, for_x, for_a, for_b, None


def batched_adapter(out: Tensor, x: Tensor, a: Tensor, b: Tensor, scaling: float) -> Tensor:
    """Adds low-rank products to a frozen layer's outputs.

    out: [W·n, …, out]. x: its inputs [W·n, …, in]. a, b: the factors [W, r, in] and [W, out, r].
    """
    rows = len(a)
    flat_out, flat = (t.reshape(rows, -1, t.shape[-1]) for t in (out, x))
    if torch.compiler.is_compiling():  # which finds a backward pass by itself, and fuses the sum with what comes next
        inside = torch.bmm(flat.to(out.dtype), a.to(out.dtype).transpose(1, 2)) * scaling
        return (flat_out + torch.bmm(inside, b.to(out.dtype).transpose(1, 2))).view(out.shape)
    made: Tensor = BatchedAdapter.apply(flat_out, flat, a, b, scaling)  # type: ignore[no-untyped-call]
    return made.view(out.shape)


# Layer norm of many models at once, alone and in front of linear layers.

Get = Callable[[str], Tensor]


def normed(x: Tensor, module: nn.LayerNorm, get: Get, fused: torch.dtype | None = None) -> Tensor:
    """torch.nn.LayerNorm on [W, …]; `fused`: by the kernel of our own, where there is one, and in this type."""
    shape = module.normalized_shape
    weight = get("weight") if module.elementwise_affine else None
    bias = get("bias") if module.elementwise_affine and module.bias is not None else None
    if fused is not None and weight is not None and has_token_kernel(module):
        return fused_layer_norm(x, weight, bias, module.eps, fused)
    if weight is None:
        return functional.layer_norm(x, shape, None, None, module.eps)
    if len(x) == 1 and not x.is_cuda:  # the same sums, without Python on the way back
        single = functional.layer_norm(x, shape, *nothing(x, shape), module.eps) * weight.squeeze(0)
        return single if bias is None else single.add_(bias.squeeze(0))
    out: Tensor = BatchedLayerNorm.apply(x, list(shape), weight, bias, module.eps)  # type: ignore[no-untyped-call]
    return out


def normed_for_products(x: StackedTensor, module: nn.LayerNorm, get: Get, widest: int) -> StackedTensor:
    """A layer norm whose result is given to linear layers alone, the widest of which has so many outputs.

    On a CPU the layer norm's own weights are better multiplied with those of the layers, which are fewer numbers than
    the samples' (`FoldedLinear`). How many samples there are is the same in every wave.
    """
    tokens = x.stacked()
    if not can_be_folded(module, tokens) or tokens.shape[1:-1].numel() < widest:
        return StackedTensor(normed(tokens, module, get), x.rows)
    shape = module.normalized_shape
    plain = functional.layer_norm(tokens, shape, *nothing(tokens, shape), module.eps)
    return StackedTensor(plain, x.rows, left=(get("weight"), None if module.bias is None else get("bias")))


def can_be_folded(module: nn.LayerNorm, x: Tensor) -> bool:
    plain = x.dtype == torch.float32 and not (x.is_cuda or torch.is_autocast_enabled("cpu"))
    return plain and module.elementwise_affine and len(module.normalized_shape) == 1


def nothing(x: Tensor, shape: tuple[int, ...]) -> tuple[Tensor | None, Tensor | None]:
    """Weights and biases that change nothing: on a CPU torch's layer norm takes half as long again without any."""
    return (None, None) if x.is_cuda or x.dtype != torch.float32 else ones_and_zeros(shape)


@cache
@torch.inference_mode(False)
def ones_and_zeros(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    return torch.ones(shape), torch.zeros(shape)


class BatchedLayerNorm(torch.autograd.Function):
    """LayerNorm on [W, …] with weights of its own for each row: torch's, and one pass for the weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: list[int], weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        x = x.float() if x.dtype != weight.dtype else x  # as torch does it among 16 bits; the way back has to know
        normal, mean, inverse = torch.native_layer_norm(x, shape, *nothing(x, tuple(shape)), eps)
        places = (len(x), *[1] * (x.dim() - 1 - len(shape)), *shape)
        ctx.save_for_backward(x, normal, mean, inverse, weight.view(places))
        ctx.shape, ctx.has_bias = shape, bias is not None
        out = normal * weight.view(places)
        return out if bias is None else out.add_(bias.view(places))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, normal, mean, inverse, weight = ctx.saved_tensors
        rows, size = len(x), math.prod(ctx.shape)
        flat = (rows, -1, size)
        for_bias = gradient.reshape(flat).sum(1) if ctx.has_bias else None
        for_weight = (gradient * normal).view(flat).sum(1)
        for_x = torch.ops.aten.native_layer_norm_backward(
            gradient * weight, x, ctx.shape, mean, inverse, *nothing(x, tuple(ctx.shape)), [True, False, False]
        )[0]
        own = (rows, *ctx.shape)
        return for_x, None, for_weight.view(own), None if for_bias is None else for_bias.view(own), None
