"""Layer norm and attention of many small transformers as steps of autograd."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from walktalk.learning.stacked.fused import token_kernels
from walktalk.learning.stacked.fused.tiles import MOST_IN_HEAD, MOST_TOKENS, filled, precision, tiles_of

NUMBERS = 4096  # in a tile of a layer norm
ROUNDS = 8  # tiles that one program of its backward pass does


class LayerNorm(torch.autograd.Function):
    """γ·x̂ + β over the last dimension of x [W, …, C], with γ and β [W, C] of each row; in the type `kind`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gamma: Tensor, beta: Tensor | None, eps: float, kind: torch.dtype) -> Tensor:
        x, gamma = x.contiguous(), gamma.contiguous()
        rows, size = len(x), x.shape[-1]
        tokens, wide = x[0].numel() // size, filled(size)
        block = max(1, NUMBERS // wide)
        z = torch.empty(x.shape, dtype=kind, device=x.device)
        mean, inverse = torch.empty((2, rows, tokens), device=x.device)
        token_kernels.layer_norm[(tiles_of(tokens, block), rows)](
            x,
            gamma,
            gamma if beta is None else beta.contiguous(),
            z,
            mean,
            inverse,
            tokens,
            eps,
            size,
            wide,
            block,
            beta is not None,
        )
        ctx.save_for_backward(x, gamma, mean, inverse)
        ctx.has_bias = beta is not None
        return z

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        x, gamma, mean, inverse = ctx.saved_tensors
        rows, size = len(x), x.shape[-1]
        tokens, wide = mean.shape[1], filled(size)
        block = max(1, NUMBERS // wide)
        count = tiles_of(tokens, block * ROUNDS)
        dx = torch.empty_like(x)
        partials = torch.empty((rows, count, 2, wide), device=x.device)
        token_kernels.layer_norm_backward[(count, rows)](
            dz.contiguous(), x, gamma, mean, inverse, dx, partials, tokens, size, wide, block, ROUNDS
        )
        for_beta, for_gamma = partials.sum(1)[..., :size].unbind(1)
        return dx, for_gamma.contiguous(), for_beta.contiguous() if ctx.has_bias else None, None, None


def can_attend(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether there is a kernel for attention of these [N, heads, T, D]: as many keys as queries, and few."""
    small = q.shape[-2] <= MOST_TOKENS and q.shape[-1] <= MOST_IN_HEAD
    return small and q.dim() == 4 and q.shape == k.shape == v.shape


def laid_alike(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors, each head's numbers side by side, and all at the same distances."""
    first = tensors[0].stride()
    if first[-1] == 1 and all(tensor.stride() == first for tensor in tensors):
        return tensors
    return tuple(tensor.contiguous() for tensor in tensors)


def launch_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, kind: torch.dtype) -> Tensor:
    """[N, heads, T, D], in memory [N, T, heads, D]: where heads are put side by side again, nothing is moved."""
    texts, heads, tokens, size = q.shape
    out = torch.empty((texts, tokens, heads, size), dtype=kind, device=q.device)
    token_kernels.attention[(texts * heads,)](
        q,
        k,
        v,
        out,
        *q.stride()[:3],
        heads,
        tokens,
        scale,
        *sizes(tokens, size),
        causal,
        precision(out),
        **warps(tokens),
    )
    return out.transpose(1, 2)


def sizes(tokens: int, size: int) -> tuple[int, int, int]:
    return size, filled(tokens), filled(size)


def warps(tokens: int) -> dict[str, int]:
    return {"num_warps": 8 if tokens > 64 else 4 if tokens > 32 else 2}


def launch_backward(
    given: tuple[Tensor, Tensor, Tensor],
    gradient: Tensor,
    into: tuple[Tensor, Tensor, Tensor],
    scale: float,
    causal: bool,
) -> None:
    """The gradients for q, k and v into memory that lies alike; all [N, heads, T, D]."""
    texts, heads, tokens, size = gradient.shape
    gradient = gradient if gradient.stride(-1) == 1 else gradient.contiguous()
    distances = (*given[0].stride()[:3], *gradient.stride()[:3], *into[0].stride()[:3])
    token_kernels.attention_backward[(texts * heads,)](
        *given,
        gradient,
        *into,
        *distances,
        heads,
        tokens,
        scale,
        *sizes(tokens, size),
        causal,
        precision(into[0]),
        **warps(tokens),
    )


class Attention(torch.autograd.Function):
    """Attention of q, k and v [N, heads, T, D], computed in the type `kind`."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, kind: torch.dtype) -> Tensor:
        q, k, v = laid_alike(q, k, v)
        ctx.save_for_backward(q, k, v)
        ctx.settings = scale, causal, kind
        return launch_attention(q, k, v, scale, causal, kind)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        scale, causal, kind = ctx.settings
        texts, heads, tokens, size = q.shape
        all_three = torch.empty((3, texts, tokens, heads, size), dtype=kind, device=q.device).transpose(2, 3)
        into = all_three[0], all_three[1], all_three[2]
        launch_backward((q, k, v), gradient, into, scale, causal)
        return *(part.to(q.dtype) for part in into), None, None, None


class PackedAttention(torch.autograd.Function):
    """The same of one tensor [W, 3, B, heads, T, D] that holds all three; its gradient lies as one product gave it,
    [W, B, T, 3, heads, D], so that on the way back nothing is moved either."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, scale: float, causal: bool, kind: torch.dtype) -> Tensor:
        ctx.save_for_backward(packed)
        ctx.settings = scale, causal, kind
        return launch_attention(*apart(packed), scale, causal, kind)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (packed,) = ctx.saved_tensors
        scale, causal, kind = ctx.settings
        rows, _, batch, heads, tokens, size = packed.shape
        found = torch.empty((rows, batch, tokens, 3, heads, size), dtype=kind, device=packed.device)
        found = found.permute(0, 3, 1, 4, 2, 5)
        launch_backward(apart(packed), gradient, apart(found), scale, causal)
        return found.to(packed.dtype), None, None, None


def apart(packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v, [N, heads, T, D] each, at the same distances."""
    q, k, v = laid_alike(*(packed[:, part].flatten(0, 1) for part in range(3)))
    return q, k, v


def attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None, causal: bool, kind: torch.dtype, packed: Tensor | None
) -> Tensor:
    """Attention on [N, heads, T, D]; `packed` [W, 3, B, heads, T, D]: what q, k and v are parts of, if they are."""
    factor = scale or 1 / math.sqrt(q.shape[-1])
    if packed is not None:
        together: Tensor = PackedAttention.apply(packed, factor, causal, kind)  # type: ignore[no-untyped-call]
        return together
    out: Tensor = Attention.apply(q, k, v, factor, causal, kind)  # type: ignore[no-untyped-call]
    return out
