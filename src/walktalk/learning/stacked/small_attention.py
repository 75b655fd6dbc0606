"""Attention over few tokens on a CPU, with the way back written out: few passes over the memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def step_by_step(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kept: Tensor | None, factor: float) -> Tensor:
    """Attention as its definition says it; `kept` is what dropout multiplies the weights by."""
    scores = (q * factor) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    weights = scores.softmax(-1)
    return (weights if kept is None else weights * kept.to(weights.dtype)).to(v.dtype) @ v


def is_by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Whether the two below can be used: they have no gradient for a mask, and cast nothing."""
    plain = q.dim() == 4 and q.shape[:2] == k.shape[:2] == v.shape[:2] and q.dtype == torch.float32
    return plain and not (q.is_cuda or torch.is_autocast_enabled("cpu")) and (mask is None or not mask.requires_grad)


class SmallAttention(torch.autograd.Function):
    """The same on [N, heads, T, d], with fewer passes over the memory than autograd's."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kept: Tensor | None, factor: float
    ) -> Tensor:
        flat = [x.reshape(-1, *x.shape[-2:]) for x in (q, k, v)]
        weights, used, out = forwards(flat, mask, kept, factor, q.shape[:-1])
        ctx.save_for_backward(*flat, weights, used, kept)
        ctx.factor, ctx.shapes = factor, (q.shape, k.shape, v.shape)
        return out.view(*q.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, used, kept = ctx.saved_tensors
        into = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        backwards(gradient, (q, k, v), weights, used, kept, ctx.factor, into)
        found = (part.view(shape) for part, shape in zip(into, ctx.shapes, strict=True))
        return (*found, None, None, None)


class PackedAttention(torch.autograd.Function):
    """The same of queries, keys and values that are one tensor [W, 3, B, heads, T, d], as one linear layer gives them.

    One copy puts the heads behind one another, and one puts all gradients where that layer wants them.
    """

    @staticmethod
    def forward(ctx: Any, whole: Tensor, mask: Tensor | None, kept: Tensor | None, factor: float) -> Tensor:
        shape = (whole.shape[0] * whole.shape[2], *whole.shape[3:])
        flat = whole.transpose(0, 1).reshape(3, -1, *whole.shape[-2:])
        weights, used, out = forwards(flat.unbind(), mask, kept, factor, shape[:-1])
        ctx.save_for_backward(whole, flat, weights, used, kept)
        ctx.factor = factor
        return out.view(shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        whole, flat, weights, used, kept = ctx.saved_tensors
        into, found = torch.empty_like(flat), torch.empty_like(whole)  # which keeps the order of dimensions in memory
        backwards(gradient, flat.unbind(), weights, used, kept, ctx.factor, into.unbind())
        turned = found.transpose(0, 1)
        turned.copy_(into.view(turned.shape))
        return found, None, None, None


def forwards(
    given: Sequence[Tensor], mask: Tensor | None, kept: Tensor | None, factor: float, shape: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Of [N · heads, T, d] the weights, what is used of them, and the result; `shape`: (N, heads, T), for the mask."""
    q, k, v = given
    scores = scaled_product(q, k.transpose(1, 2), factor)
    if mask is not None:
        shaped = scores.view(*shape, -1)
        shaped.masked_fill_(~mask, -math.inf) if mask.dtype == torch.bool else shaped.add_(mask)
    weights = torch.softmax(scores, -1)
    used = weights if kept is None else torch.mul(weights, kept.view_as(weights), out=scores)
    return weights, used, torch.bmm(used, v)


def backwards(
    gradient: Tensor,
    given: Sequence[Tensor],
    weights: Tensor,
    used: Tensor,
    kept: Tensor | None,
    factor: float,
    into: Sequence[Tensor],
) -> None:
    """Write the gradients of queries, keys and values, [N · heads, T, d] each."""
    (q, k, v), (for_q, for_k, for_v) = given, into
    flat = gradient.reshape(-1, *gradient.shape[-2:])
    torch.bmm(used.transpose(1, 2), flat, out=for_v)
    for_weights = torch.bmm(flat, v.transpose(1, 2))
    if kept is not None:
        for_weights *= kept.view_as(weights)
    for_scores = torch._softmax_backward_data(for_weights, weights, -1, weights.dtype)
    torch.baddbmm(for_q, for_scores, k, beta=0.0, alpha=factor, out=for_q)
    torch.baddbmm(for_k, for_scores.transpose(1, 2), q, beta=0.0, alpha=factor, out=for_k)


def scaled_product(a: Tensor, b: Tensor, factor: float) -> Tensor:
    """factor · a b of matrices [N, …], in one pass."""
    out = a.new_empty(len(a), a.shape[1], b.shape[2])
    return torch.baddbmm(out, a, b, beta=0.0, alpha=factor, out=out)
