"""Attention of many models at once: it has no weights of its own, so rows are only more samples.

The weights are in the linear layers around it. torch's own modules, which have both, are here too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from walktalk.learning.stacked.fused import attend as fused_attention
from walktalk.learning.stacked.fused import can_attend
from walktalk.learning.stacked.laid import Laid, NotStackable, Pass
from walktalk.learning.stacked.norms import normed, normed_for_products
from walktalk.learning.stacked.products import batched_linear, linear_of
from walktalk.learning.stacked.small_attention import PackedAttention, SmallAttention, is_by_hand, step_by_step

Get = Callable[[str], Tensor]
FEW_TOKENS = 64  # up to here products and a softmax take less time than torch's own attention on a CPU
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
        whole = packed(q, k, v)
        if not is_by_hand(queries, keys, values, mask):
            out = step_by_step(queries, keys, values, mask, kept, factor)
        elif whole is not None:
            out = PackedAttention.apply(whole, mask, kept, factor)  # type: ignore[no-untyped-call]
        else:
            out = SmallAttention.apply(queries, keys, values, mask, kept, factor)  # type: ignore[no-untyped-call]
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
    rows = query.rows
    weight = get("in_proj_weight")
    bias = None if module.in_proj_bias is None else get("in_proj_bias")
    if query is key and key is value:  # as a whole, [W, 3, B, heads, T, d]
        parts = linear_of(query, weight, bias).unflatten(-1, (3, module.num_heads, -1))
        whole = Laid(parts.permute((0, 3, 1, 4, 2, 5) if module.batch_first else (0, 3, 2, 4, 1, 5)), rows)
        at_once = not parts.is_cuda  # there, kernels of our own take the three as they come
        q, k, v = (Laid(whole.part(place), rows, of=(whole, place) if at_once else None) for place in range(3))
    else:
        biases = [None] * 3 if bias is None else bias.chunk(3, dim=1)
        given = zip((query, key, value), weight.chunk(3, dim=1), biases, strict=True)
        tokens = [
            batched_linear(x.stacked() if module.batch_first else x.stacked().transpose(1, 2), w, b)
            for x, w, b in given
        ]
        q, k, v = (Laid(part.unflatten(-1, (module.num_heads, -1)).transpose(2, 3), rows) for part in tokens)
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
    def attention(x: Tensor, entering: Laid) -> Tensor:
        out = attended(
            module.self_attn,
            under(get, "self_attn"),
            run,
            entering,
            entering,
            entering,
            src_key_padding_mask,
            False,
            src_mask,
            True,
            is_causal,
        )
        return run.added(x, out.tensor, module.dropout1.p)

    def perceptron(x: Tensor, entering: Laid) -> Tensor:
        inner = module.activation(affine(entering, module.linear1, under(get, "linear1")))
        kept = Laid(run.dropped(inner, module.dropout.p), src.rows)
        return run.added(x, affine(kept, module.linear2, under(get, "linear2")), module.dropout2.p)

    def norm(x: Tensor, name: str, widest: int) -> Laid:
        """In front, products alone see it."""
        if module.norm_first and run.fused is None:
            return normed_for_products(Laid(x, src.rows), getattr(module, name), under(get, name), widest)
        fused = None if run.fused is None else run.fused if module.norm_first else torch.float32
        return Laid(normed(x, getattr(module, name), under(get, name), fused), src.rows)

    x, wide = src.stacked(), module.self_attn.embed_dim
    if module.norm_first:
        x = attention(x, norm(x, "norm1", 3 * wide))
        return Laid(perceptron(x, norm(x, "norm2", module.linear1.out_features)), src.rows)
    y = norm(attention(x, src), "norm1", 0)
    return norm(perceptron(y.tensor, y), "norm2", 0)


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


def affine(x: Laid, module: nn.Linear, get: Get) -> Tensor:
    return linear_of(x, get("weight"), None if module.bias is None else get("bias"))
