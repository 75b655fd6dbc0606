"""Attention of many models at once: it has no weights of its own, so rows are only more samples.

The weights are in the linear layers around it. torch's own modules, which have both, are here too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from walktalk.learning.kernels import attend as fused_attention
from walktalk.learning.kernels import can_attend
from walktalk.learning.stacked.products import batched_linear, linear_of, normed, normed_for_products
from walktalk.learning.stacked.tensors import NotStackable, Pass, StackedTensor

# Attention over few tokens on a CPU, with the way back written out: few passes over the memory.


def step_by_step(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kept: Tensor | None, factor: float) -> Tensor:
    """Attention operation by operation; `kept` is what dropout multiplies the weights by."""
    scores = (q * factor) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    weights = scores.softmax(-1)
    return (weights if kept is None else weights * kept.to(weights.dtype)).to(v.dtype) @ v


def is_by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Whether the two classes below can be used: they have no gradient for a mask, and cast nothing."""
    plain = q.dim() == 4 and q.shape[:2] == k.shape[:2] == v.shape[:2] and q.dtype == torch.float32
    return plain and not (q.is_cuda or torch.is_autocast_enabled("cpu")) and (mask is None or not mask.requires_grad)


class SmallAttention(torch.autograd.Function):
    """Attention on [N, heads, T, d], with fewer passes over the memory than autograd's."""

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
    """Attention of queries, keys and values that are one tensor [W, 3, B, heads, T, d], as one linear layer gives them.

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
    """The weights of [N · heads, T, d], what is used of them, and the result; `shape`: (N, heads, T), for the mask."""
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


Get = Callable[[str], Tensor]
FEW_TOKENS = 64  # up to here products and a softmax take less time than torch's own attention on a CPU
Mask = Tensor | StackedTensor | None  # a tensor is the same for all rows


class AttentionCall(NamedTuple):
    """What torch's `scaled_dot_product_attention` is called with, by its names."""

    query: Any  # [W, B, heads, T, d], as the next two: a StackedTensor, or a value of a compiled model
    key: Any
    value: Any
    attn_mask: Any = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def attend(run: Pass, call: AttentionCall) -> StackedTensor:
    """torch's `scaled_dot_product_attention` of many models; with dropout, step by step."""
    q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa = call
    if enable_gqa or q.tensor.dim() < 4:
        raise NotStackable("this kind of attention")
    mask = attn_mask.joined() if isinstance(attn_mask, StackedTensor) else attn_mask
    if mask is not None and isinstance(attn_mask, StackedTensor):
        if attn_mask.tensor.dim() != q.tensor.dim():
            raise NotStackable("a mask without all dimensions")
        if attn_mask.tensor.shape[1] == 1:  # one for all samples of a row
            mask = attn_mask.tensor.expand(-1, q.tensor.shape[1], *attn_mask.tensor.shape[2:]).flatten(0, 1)
    queries, keys, values = q.joined(), k.joined(), v.joined()
    drops = dropout_p > 0.0 and run.training
    if run.fused is not None and mask is None and not drops and can_attend(queries, keys, values):
        out = fused_attention(queries, keys, values, scale, is_causal, run.fused, packed(q, k, v))
    elif drops or (not queries.is_cuda and keys.shape[-2] <= FEW_TOKENS):
        shape = (*queries.shape[:-1], keys.shape[-2])  # of the scores
        if is_causal:
            mask = torch.ones(shape[-2:], dtype=torch.bool, device=queries.device).tril()
        kept = run.kept((q.rows, shape[0] // q.rows, *shape[1:]), dropout_p, queries).flatten(0, 1) if drops else None
        factor = scale or 1 / math.sqrt(queries.shape[-1])
        whole = packed(q, k, v)
        if not is_by_hand(queries, keys, values, mask):
            out = step_by_step(queries, keys, values, mask, kept, factor)
        elif whole is not None:
            out = PackedAttention.apply(whole, mask, kept, factor)  # type: ignore[no-untyped-call]
        else:
            out = SmallAttention.apply(queries, keys, values, mask, kept, factor)  # type: ignore[no-untyped-call]
    else:
        out = functional.scaled_dot_product_attention(queries, keys, values, mask, 0.0, is_causal, scale=scale)
    return StackedTensor(out.unflatten(0, (q.rows, -1)), q.rows)


def packed(q: StackedTensor, k: StackedTensor, v: StackedTensor) -> Tensor | None:
    """The tensor [W, 3, B, heads, T, d] that the three are parts of, if they are."""
    if q.of is None or k.of is None or v.of is None:
        return None
    whole, places = q.of[0], (q.of[1], k.of[1], v.of[1])
    same = whole is k.of[0] and whole is v.of[0] and places == (0, 1, 2)
    tensor = whole.stacked()
    return tensor if same and tensor.dim() == 6 and tensor.shape[1] == 3 else None


def multihead_attention(args: list[Any], kwargs: dict[str, Any], module: Any, get: Get, run: Pass) -> Any:
    """Runs a torch.nn.MultiheadAttention of many models; the weights beside its result are not computed."""
    return attended(module, get, run, MultiheadCall(*args, **kwargs)), None


class MultiheadCall(NamedTuple):
    """What a torch.nn.MultiheadAttention is called with, by its names."""

    query: StackedTensor
    key: StackedTensor
    value: StackedTensor
    key_padding_mask: Mask = None
    need_weights: bool = True
    attn_mask: Mask = None
    average_attn_weights: bool = True
    is_causal: bool = False


def attended(module: nn.MultiheadAttention, get: Get, run: Pass, call: MultiheadCall) -> StackedTensor:
    query, key, value = call[:3]
    if not module._qkv_same_embed_dim or module.bias_k is not None or module.add_zero_attn:
        raise NotStackable("this kind of MultiheadAttention")
    rows = query.rows
    weight = get("in_proj_weight")
    bias = None if module.in_proj_bias is None else get("in_proj_bias")
    if query is key and key is value:  # as a whole, [W, 3, B, heads, T, d]
        parts = linear_of(query, weight, bias).unflatten(-1, (3, module.num_heads, -1))
        whole = StackedTensor(parts.permute((0, 3, 1, 4, 2, 5) if module.batch_first else (0, 3, 2, 4, 1, 5)), rows)
        at_once = not parts.is_cuda  # there, kernels of our own take the three as they come
        q, k, v = (StackedTensor(whole.part(place), rows, of=(whole, place) if at_once else None) for place in range(3))
    else:
        biases = [None] * 3 if bias is None else bias.chunk(3, dim=1)
        given = zip((query, key, value), weight.chunk(3, dim=1), biases, strict=True)
        tokens = [
            batched_linear(x.stacked() if module.batch_first else x.stacked().transpose(1, 2), w, b)
            for x, w, b in given
        ]
        q, k, v = (StackedTensor(part.unflatten(-1, (module.num_heads, -1)).transpose(2, 3), rows) for part in tokens)
    causal = call.is_causal and call.key_padding_mask is None
    mask = None if causal else merged(call.key_padding_mask, call.attn_mask)
    mixed = attend(run, AttentionCall(q, k, v, mask, module.dropout, causal)).tensor.transpose(2, 3).flatten(-2)
    out = batched_linear(mixed, get("out_proj.weight"), None if module.out_proj.bias is None else get("out_proj.bias"))
    return StackedTensor(out if module.batch_first else out.transpose(1, 2), rows)


def merged(padding: Mask, mask: Mask) -> Mask:
    """Both masks of a MultiheadAttention, True where nothing is to be looked at, as one of `attend`."""
    if isinstance(mask, StackedTensor) or (mask is not None and mask.dim() != 2):
        raise NotStackable("a mask that differs from row to row")
    if mask is not None and mask.dtype == torch.bool:
        mask = ~mask
    if padding is None:
        return mask
    if not isinstance(padding, StackedTensor) or padding.tensor.dtype != torch.bool:
        raise NotStackable("this kind of padding mask")
    seen = ~padding.stacked()[:, :, None, None, :]
    if mask is None:
        return StackedTensor(seen, padding.rows)
    if mask.dtype == torch.bool:
        return StackedTensor(seen & mask, padding.rows)
    return StackedTensor(torch.where(seen, mask, -math.inf), padding.rows)


def encoder_layer(args: list[Any], kwargs: dict[str, Any], module: Any, get: Get, run: Pass) -> StackedTensor:
    """Runs a torch.nn.TransformerEncoderLayer of many models."""
    return encoded(module, get, run, *args, **kwargs)


def encoded(
    module: nn.TransformerEncoderLayer,
    get: Get,
    run: Pass,
    src: StackedTensor,
    src_mask: Mask = None,
    src_key_padding_mask: Mask = None,
    is_causal: bool = False,
) -> StackedTensor:
    def attention(x: Tensor, entering: StackedTensor) -> Tensor:
        seen = MultiheadCall(entering, entering, entering, src_key_padding_mask, False, src_mask, True, is_causal)
        out = attended(module.self_attn, under(get, "self_attn"), run, seen)
        return run.added(x, out.tensor, module.dropout1.p)

    def perceptron(x: Tensor, entering: StackedTensor) -> Tensor:
        inner = module.activation(affine(entering, module.linear1, under(get, "linear1")))
        kept = StackedTensor(run.dropped(inner, module.dropout.p), src.rows)
        return run.added(x, affine(kept, module.linear2, under(get, "linear2")), module.dropout2.p)

    def norm(x: Tensor, name: str, widest: int) -> StackedTensor:
        """Applies a norm; where it stands in front, products alone see its result."""
        if module.norm_first and run.fused is None:
            return normed_for_products(StackedTensor(x, src.rows), getattr(module, name), under(get, name), widest)
        fused = None if run.fused is None else run.fused if module.norm_first else torch.float32
        return StackedTensor(normed(x, getattr(module, name), under(get, name), fused), src.rows)

    x, wide = src.stacked(), module.self_attn.embed_dim
    if module.norm_first:
        x = attention(x, norm(x, "norm1", 3 * wide))
        return StackedTensor(perceptron(x, norm(x, "norm2", module.linear1.out_features)), src.rows)
    y = norm(attention(x, src), "norm1", 0)
    return norm(perceptron(y.tensor, y), "norm2", 0)


def encoder(args: list[Any], kwargs: dict[str, Any], module: Any, get: Get, run: Pass) -> StackedTensor:
    """Runs a torch.nn.TransformerEncoder of many models."""
    names = ("mask", "src_key_padding_mask", "is_causal")
    given = dict(zip(names, args[1:], strict=False)) | kwargs
    mask, padding, causal = (given.get(name) for name in names)
    x: StackedTensor = args[0]
    for k, layer in enumerate(module.layers):
        if type(layer) is not nn.TransformerEncoderLayer:
            raise NotStackable("an encoder of other layers")
        x = encoded(layer, under(get, f"layers.{k}"), run, x, mask, padding, bool(causal))
    if module.norm is None:
        return x
    if type(module.norm) is not nn.LayerNorm:
        raise NotStackable("an encoder with another norm")
    return StackedTensor(normed(x.stacked(), module.norm, under(get, "norm")), x.rows)


def under(get: Get, name: str) -> Get:
    """Looks up a part's parameters by their own names."""
    return lambda part: get(f"{name}.{part}")


def affine(x: StackedTensor, module: nn.Linear, get: Get) -> Tensor:
    return linear_of(x, get("weight"), None if module.bias is None else get("bias"))
