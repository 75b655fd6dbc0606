"""Attention of short texts as an operation of torch, so that a compiler takes it as it is.

Torch's own kernels are made for long texts: of a hundred tokens most of their backward pass is spent beside products.
"""

# Torch reads the annotations of an operation, so there are no postponed ones here.
from typing import Any

import torch
from torch import Tensor

from walktalk.learning.stacked.fused.tiles import MOST_IN_HEAD, MOST_TOKENS, filled

FORWARD, BACKWARD = 64, 32  # tokens that ask at once, each the faster of the two on an H200
LAUNCH = {"num_warps": 4, "num_stages": 3}


def can_attend_in_groups(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether there is a kernel for these [N, heads, T, D]: in 16 bits, as many keys as queries, and few."""
    short = q.shape[-2] == k.shape[-2] <= MOST_TOKENS and q.shape[-1] <= MOST_IN_HEAD
    alike = k.shape == v.shape and q.shape[::3] == k.shape[::3] and q.dtype == k.dtype == v.dtype
    in_16_bits = q.dtype in (torch.bfloat16, torch.float16)
    return q.is_cuda and q.dim() == 4 and alike and in_16_bits and short and q.shape[1] % k.shape[1] == 0


@torch.library.custom_op("walktalk::attend_in_groups", mutates_args=())
def attend_in_groups(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Tensor:
    """[N, T, heads, D] of q [N, heads, T, D] and of k and v [N, fewer heads, T, D]."""
    from walktalk.learning.stacked.fused import head_kernels  # needs Triton

    q, k, v = (dense_heads(part) for part in (q, k, v))
    texts, heads, tokens, size = q.shape
    out = q.new_empty((texts, tokens, heads, size))
    head_kernels.attend[(texts * k.shape[1],)](
        q, k, v, out, *distances(q, k, v), *sizes(q, k, scale, FORWARD), causal, **LAUNCH
    )
    return out


@attend_in_groups.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Tensor:
    texts, heads, tokens, size = q.shape
    return q.new_empty((texts, tokens, heads, size))


@torch.library.custom_op("walktalk::attend_in_groups_backward", mutates_args=())
def attend_in_groups_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients for q, k and v, each [N, T, heads, D], of the one for the result."""
    from walktalk.learning.stacked.fused import head_kernels

    q, k, v = (dense_heads(part) for part in (q, k, v))
    into = tuple(torch.empty_like(part.transpose(1, 2), memory_format=torch.contiguous_format) for part in (q, k, v))
    head_kernels.attend_backward[(len(q) * k.shape[1],)](
        q, k, v, gradient.contiguous(), *into, *distances(q, k, v), *sizes(q, k, scale, BACKWARD), causal, **LAUNCH
    )
    return into[0], into[1], into[2]


@attend_in_groups_backward.register_fake
def _(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (part.new_empty(part.transpose(1, 2).shape) for part in (q, k, v))
    return dq, dk, dv


def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """What the way back needs."""
    q, k, v, ctx.scale, ctx.causal = inputs
    ctx.save_for_backward(q, k, v)


def back(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    found = attend_in_groups_backward(gradient, *ctx.saved_tensors, ctx.scale, ctx.causal)
    return *(part.transpose(1, 2) for part in found), None, None


attend_in_groups.register_autograd(back, setup_context=keep)


def dense_heads(part: Tensor) -> Tensor:
    """The same with each head's numbers of a token side by side."""
    return part if part.stride(-1) == 1 else part.contiguous()


def distances(*parts: Tensor) -> list[int]:
    return [distance for part in parts for distance in part.stride()[:3]]


def sizes(q: Tensor, k: Tensor, scale: float, most: int) -> tuple[Any, ...]:
    """`most`: tokens that ask at once."""
    heads, tokens, size = k.shape[1], q.shape[2], q.shape[3]
    wide, block = filled(tokens), min(most, filled(tokens))
    return heads, tokens, scale, q.shape[1] // heads, -(-tokens // block), size, wide, filled(size), block
