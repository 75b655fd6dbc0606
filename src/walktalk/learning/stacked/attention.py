"""Attention of many models at once: it has no weights of its own, so rows are only more samples.

The weights are in the linear layers around it. torch's own modules, which have both, are here too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from walktalk.learning.stacked.fused import attend as fused_attention
from walktalk.learning.stacked.fused import can_attend, has_token_kernel
from walktalk.learning.stacked.fused import layer_norm as fused_layer_norm
from walktalk.learning.stacked.laid import Laid, NotStackable, Pass
from walktalk.learning.stacked.products import batched_linear

Get = Callable[[str], Tensor]
FEW_TOKENS = 32  # up to here products and a softmax take less time than torch's own attention on a CPU
Mask = Tensor | Laid | None  # a tensor is the same for all rows


def attend(
    run: Pass,
    q: Laid,
    k: Laid,
    v: Laid,
    attn_mask: Mask = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Laid:
    """torch's `scaled_dot_product_attention` on [W, B, heads, T, d]; with dropout, step by step."""
    if enable_gqa or q.tensor.dim() < 4:
        raise NotStackable("this kind of attention")
    mask = attn_mask.joined() if isinstance(attn_mask, Laid) else attn_mask
    if mask is not None and isinstance(attn_mask, Laid):
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
        if is_by_hand(queries, keys, values, mask):
            out = SmallAttention.apply(queries, keys, values, mask, kept, factor)  # type: ignore[no-untyped-call]
        else:
            out = step_by_step(queries, keys, values, mask, kept, factor)
    else:
        out = functional.scaled_dot_product_attention(queries, keys, values, mask, 0.0, is_causal, scale=scale)
    return Laid(out.unflatten(0, (q.rows, -1)), q.rows)


def packed(q: Laid, k: Laid, v: Laid) -> Tensor | None:
    """The tensor [W, 3, B, heads, T, d] that the three are parts of, if they are."""
    if q.of is None or k.of is None or v.of is None:
        return None
    whole, places = q.of[0], (q.of[1], k.of[1], v.of[1])
    same = whole is k.of[0] and whole is v.of[0] and places == (0, 1, 2)
    tensor = whole.stacked()
    return tensor if same and tensor.dim() == 6 and tensor.shape[1] == 3 else None


def step_by_step(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kept: Tensor | None, factor: float) -> Tensor:
    """Attention as its definition says it; `kept` is what dropout multiplies the weights by."""
    scores = (q * factor) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    weights = scores.softmax(-1)
    return (weights if kept is None else weights * kept.to(weights.dtype)).to(v.dtype) @ v


def is_by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Whether `SmallAttention` can be used: it has no gradient for a mask, and casts nothing."""
    plain = q.dim() == 4 and q.shape[:2] == k.shape[:2] == v.shape[:2] and q.dtype == torch.float32
    return plain and not (q.is_cuda or torch.is_autocast_enabled("cpu")) and (mask is None or not mask.requires_grad)


class SmallAttention(torch.autograd.Function):
    """The same on [N, heads, T, d] on a CPU, with fewer passes over the memory than autograd's."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kept: Tensor | None, factor: float
    ) -> Tensor:
        flat_q, flat_k, flat_v = (x.reshape(-1, *x.shape[-2:]) for x in (q, k, v))
        scores = scaled_product(flat_q, flat_k.transpose(1, 2), factor)
        if mask is not None:
            shaped = scores.view(*q.shape[:-1], -1)
            shaped.masked_fill_(~mask, -math.inf) if mask.dtype == torch.bool else shaped.add_(mask)
        weights = scores.softmax(-1)
        used = weights if kept is None else weights * kept.view_as(weights)
        ctx.save_for_backward(flat_q, flat_k, flat_v, weights, used, kept)
        ctx.factor, ctx.shapes = factor, (q.shape, k.shape, v.shape)
        return torch.bmm(used, flat_v).view(*q.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, weights, used, kept = ctx.saved_tensors
        flat = gradient.reshape(-1, *gradient.shape[-2:])
        for_v = torch.bmm(used.transpose(1, 2), flat)
        for_weights = torch.bmm(flat, v.transpose(1, 2))
        if kept is not None:
            for_weights *= kept.view_as(weights)
        for_scores = torch._softmax_backward_data(for_weights, weights, -1, weights.dtype)
        for_q = scaled_product(for_scores, k, ctx.factor)
        for_k = scaled_product(for_scores.transpose(1, 2), q, ctx.factor)
        found = (part.view(shape) for part, shape in zip((for_q, for_k, for_v), ctx.shapes, strict=True))
        return (*found, None, None, None)


def scaled_product(a: Tensor, b: Tensor, factor: float) -> Tensor:
    """factor · a b of matrices [N, …], in one pass."""
    out = a.new_empty(len(a), a.shape[1], b.shape[2])
    return torch.baddbmm(out, a, b, beta=0.0, alpha=factor, out=out)


def multihead_attention(args: list[Any], kwargs: dict[str, Any], module: Any, get: Get, run: Pass) -> Any:
    """torch.nn.MultiheadAttention. The weights that it can give back beside the result are not computed."""
    return attended(module, get, run, *args, **kwargs), None


def attended(
    module: nn.MultiheadAttention,
    get: Get,
    run: Pass,
    query: Laid,
    key: Laid,
    value: Laid,
    key_padding_mask: Mask = None,
    need_weights: bool = True,
    attn_mask: Mask = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Laid:
    if not module._qkv_same_embed_dim or module.bias_k is not None or module.add_zero_attn:
        raise NotStackable("this kind of MultiheadAttention")
    rows, heads = query.rows, module.num_heads
    weight = get("in_proj_weight")
    bias = None if module.in_proj_bias is None else get("in_proj_bias")
    given = [x.stacked() if module.batch_first else x.stacked().transpose(1, 2) for x in (query, key, value)]
    if query is key and key is value:
        parts = list(batched_linear(given[0], weight, bias).chunk(3, dim=-1))
    else:
        biases = [None] * 3 if bias is None else bias.chunk(3, dim=1)
        parts = [batched_linear(x, w, b) for x, w, b in zip(given, weight.chunk(3, dim=1), biases, strict=True)]
    q, k, v = (Laid(part.unflatten(-1, (heads, -1)).transpose(2, 3), rows) for part in parts)
    causal = is_causal and key_padding_mask is None
    mask = None if causal else merged(key_padding_mask, attn_mask)
    mixed = attend(run, q, k, v, mask, module.dropout, causal).tensor.transpose(2, 3).flatten(-2)
    out = batched_linear(mixed, get("out_proj.weight"), None if module.out_proj.bias is None else get("out_proj.bias"))
    return Laid(out if module.batch_first else out.transpose(1, 2), rows)


def merged(padding: Mask, mask: Mask) -> Mask:
    """Both masks of a MultiheadAttention, True where nothing is to be looked at, as one of `attend`."""
    if isinstance(mask, Laid) or (mask is not None and mask.dim() != 2):
        raise NotStackable("a mask that differs from row to row")
    if mask is not None and mask.dtype == torch.bool:
        mask = ~mask
    if padding is None:
        return mask
    if not isinstance(padding, Laid) or padding.tensor.dtype != torch.bool:
        raise NotStackable("this kind of padding mask")
    seen = ~padding.stacked()[:, :, None, None, :]
    if mask is None:
        return Laid(seen, padding.rows)
    if mask.dtype == torch.bool:
        return Laid(seen & mask, padding.rows)
    return Laid(torch.where(seen, mask, -math.inf), padding.rows)


def encoder_layer(args: list[Any], kwargs: dict[str, Any], module: Any, get: Get, run: Pass) -> Laid:
    """torch.nn.TransformerEncoderLayer."""
    return encoded(module, get, run, *args, **kwargs)


def encoded(
    module: nn.TransformerEncoderLayer,
    get: Get,
    run: Pass,
    src: Laid,
    src_mask: Mask = None,
    src_key_padding_mask: Mask = None,
    is_causal: bool = False,
) -> Laid:
    def attention(x: Laid) -> Tensor:
        out = attended(
            module.self_attn,
            under(get, "self_attn"),
            run,
            x,
            x,
            x,
            src_key_padding_mask,
            False,
            src_mask,
            True,
            is_causal,
        )
        return run.dropped(out.tensor, module.dropout1.p)

    def perceptron(x: Tensor) -> Tensor:
        inner = module.activation(affine(x, module.linear1, under(get, "linear1")))
        return run.dropped(
            affine(run.dropped(inner, module.dropout.p), module.linear2, under(get, "linear2")), module.dropout2.p
        )

    def norm(x: Tensor, name: str) -> Tensor:
        fused = None if run.fused is None else run.fused if module.norm_first else torch.float32
        return normed(x, getattr(module, name), under(get, name), fused)  # in front, products alone see it

    x = src.stacked()
    if module.norm_first:
        x = x + attention(Laid(norm(x, "norm1"), src.rows))
        return Laid(x + perceptron(norm(x, "norm2")), src.rows)
    x = norm(x + attention(Laid(x, src.rows)), "norm1")
    return Laid(norm(x + perceptron(x), "norm2"), src.rows)


def encoder(args: list[Any], kwargs: dict[str, Any], module: Any, get: Get, run: Pass) -> Laid:
    """torch.nn.TransformerEncoder."""
    names = ("mask", "src_key_padding_mask", "is_causal")
    given = dict(zip(names, args[1:], strict=False)) | kwargs
    mask, padding, causal = (given.get(name) for name in names)
    x: Laid = args[0]
    for k, layer in enumerate(module.layers):
        if type(layer) is not nn.TransformerEncoderLayer:
            raise NotStackable("an encoder of other layers")
        x = encoded(layer, under(get, f"layers.{k}"), run, x, mask, padding, bool(causal))
    if module.norm is None:
        return x
    if type(module.norm) is not nn.LayerNorm:
        raise NotStackable("an encoder with another norm")
    return Laid(normed(x.stacked(), module.norm, under(get, "norm")), x.rows)


def under(get: Get, name: str) -> Get:
    """The parameters of a part."""
    return lambda part: get(f"{name}.{part}")


def affine(x: Tensor, module: nn.Linear, get: Get) -> Tensor:
    return batched_linear(x, get("weight"), None if module.bias is None else get("bias"))


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
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
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
