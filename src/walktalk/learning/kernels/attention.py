"""Layer norm and attention of many small transformers as steps of autograd."""

# Torch reads the annotations of an operation, so there are no postponed ones here.
import math
from typing import Any

import torch
from torch import Tensor

from walktalk.core.lazy import later
from walktalk.learning.kernels.tiles import MOST_IN_HEAD, MOST_TOKENS, filled, precision, tiles_of

attention_kernels = later("walktalk.learning.kernels.attention_kernels")

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
        attention_kernels.layer_norm[(tiles_of(tokens, block), rows)](
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
        attention_kernels.layer_norm_backward[(count, rows)](
            dz.contiguous(), x, gamma, mean, inverse, dx, partials, tokens, size, wide, block, ROUNDS
        )
        for_beta, for_gamma = partials.sum(1)[..., :size].unbind(1)
        return dx, for_gamma.contiguous(), for_beta.contiguous() if ctx.has_bias else None, None, None


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, eps: float, kind: torch.dtype) -> Tensor:
    """Layer norm of x [W, …, C] with weights [W, C] of each row's own; what comes out is of the type `kind`."""
    out: Tensor = LayerNorm.apply(x, gamma, beta, eps, kind)  # type: ignore[no-untyped-call]
    return out


def can_attend(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether there is a kernel for attention of these [N, heads, T, D]: as many keys as queries, and few."""
    small = q.shape[-2] <= MOST_TOKENS and q.shape[-1] <= MOST_IN_HEAD
    return small and q.dim() == 4 and q.shape == k.shape == v.shape


def with_equal_strides(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors, each head's numbers side by side, and all at the same distances."""
    first = tensors[0].stride()
    if first[-1] == 1 and all(tensor.stride() == first for tensor in tensors):
        return tensors
    return tuple(tensor.contiguous() for tensor in tensors)


def launch_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, kind: torch.dtype) -> Tensor:
    """[N, heads, T, D], in memory [N, T, heads, D]: where heads are put side by side again, nothing is moved."""
    texts, heads, tokens, size = q.shape
    out = torch.empty((texts, tokens, heads, size), dtype=kind, device=q.device)
    attention_kernels.attention[(texts * heads,)](
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
    attention_kernels.attention_backward[(texts * heads,)](
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
        q, k, v = with_equal_strides(q, k, v)
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
    """Attention of one tensor [W, 3, B, heads, T, D] that holds all three; its gradient lies as one product gave it,
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
    q, k, v = with_equal_strides(*(packed[:, part].flatten(0, 1) for part in range(3)))
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


# Attention of short texts as an operation of torch, so that a compiler takes it as it is.
#
# Torch's own kernels are made for long texts: of a hundred tokens most of their backward pass is spent beside products.

# Torch reads the annotations of an operation, so there are no postponed ones here.


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
    q, k, v = (dense_heads(part) for part in (q, k, v))
    texts, heads, tokens, size = q.shape
    out = q.new_empty((texts, tokens, heads, size))
    attention_kernels.attend[(texts * k.shape[1],)](
        q, k, v, out, *distances(q, k, v), *sizes_in_groups(q, k, scale, FORWARD), causal, **LAUNCH
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
    q, k, v = (dense_heads(part) for part in (q, k, v))
    into = tuple(torch.empty_like(part.transpose(1, 2), memory_format=torch.contiguous_format) for part in (q, k, v))
    attention_kernels.attend_backward[(len(q) * k.shape[1],)](
        q,
        k,
        v,
        gradient.contiguous(),
        *into,
        *distances(q, k, v),
        *sizes_in_groups(q, k, scale, BACKWARD),
        causal,
        **LAUNCH,
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
    """A tensor with each head's numbers of a token side by side."""
    return part if part.stride(-1) == 1 else part.contiguous()


def distances(*parts: Tensor) -> list[int]:
    return [distance for part in parts for distance in part.stride()[:3]]


def sizes_in_groups(q: Tensor, k: Tensor, scale: float, most: int) -> tuple[Any, ...]:
    """`most`: tokens that ask at once."""
    heads, tokens, size = k.shape[1], q.shape[2], q.shape[3]
    wide, block = filled(tokens), min(most, filled(tokens))
    return heads, tokens, scale, q.shape[1] // heads, -(-tokens // block), size, wide, filled(size), block
