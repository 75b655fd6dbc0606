"""Layer norm of many models at once, alone and in front of linear layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from walktalk.learning.stacked.fused import has_token_kernel
from walktalk.learning.stacked.fused import layer_norm as fused_layer_norm
from walktalk.learning.stacked.laid import Laid

Get = Callable[[str], Tensor]


def normed(x: Tensor, module: nn.LayerNorm, get: Get, fused: torch.dtype | None = None) -> Tensor:
    """torch.nn.LayerNorm on [W, …]; `fused`: by the kernel of our own, where there is one, and in this type."""
    shape = module.normalized_shape
    weight = get("weight") if module.elementwise_affine else None
    bias = get("bias") if module.elementwise_affine and module.bias is not None else None
    if fused is not None and has_token_kernel(module):
        return fused_layer_norm(x, weight, bias, module.eps, fused)
    if weight is None:
        return functional.layer_norm(x, shape, None, None, module.eps)
    if len(x) == 1 and not x.is_cuda:  # the same sums, without Python on the way back
        single = functional.layer_norm(x, shape, *nothing(x, shape), module.eps) * weight.squeeze(0)
        return single if bias is None else single.add_(bias.squeeze(0))
    out: Tensor = BatchedLayerNorm.apply(x, list(shape), weight, bias, module.eps)  # type: ignore[no-untyped-call]
    return out


def normed_for_products(x: Laid, module: nn.LayerNorm, get: Get, widest: int) -> Laid:
    """The same for who gives it to linear layers alone, the widest of which has so many outputs.

    On a CPU the layer norm's own weights are better multiplied with those of the layers, which are fewer numbers than
    the samples' (`products.folded_linear`). How many samples there are is the same in every wave.
    """
    tokens = x.stacked()
    if not can_be_folded(module, tokens) or tokens.shape[1:-1].numel() < widest:
        return Laid(normed(tokens, module, get), x.rows)
    shape = module.normalized_shape
    plain = functional.layer_norm(tokens, shape, *nothing(tokens, shape), module.eps)
    return Laid(plain, x.rows, left=(get("weight"), None if module.bias is None else get("bias")))


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
