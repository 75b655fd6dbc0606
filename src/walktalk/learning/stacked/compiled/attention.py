"""Attention, and torch's layers that are made of it, as operations of a program."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from walktalk.learning.stacked.compiled.layers import ACTIVATIONS, activation, added, dropped, layer_norm, linear
from walktalk.learning.stacked.compiled.program import Program, Value, permuted, reshaped, selected
from walktalk.learning.stacked.tensors import NotStackable

MOST_TOKENS = 128  # of more, torch's own attention, which keeps no weights, has the smaller memory


def attention(
    program: Program,
    parts: tuple[Value, Value, Value],
    mask: Tensor | None,
    p: float,
    is_causal: bool,
    scale: float | None = None,
) -> Value:
    """Writes attention of queries, keys and values [W, B, heads, T, d]; p: the share of weights that are dropped."""
    q, k, v = (part.tensor for part in parts)
    if q.dim() != 5 or max(q.shape[-2], k.shape[-2]) > MOST_TOKENS:
        raise NotStackable("this kind of attention")
    if mask is not None and ((not mask.is_floating_point() and mask.dtype != torch.bool) or mask.dim() != 2):
        raise NotStackable("this kind of mask")
    size, factor = (*q.shape[:-1], k.shape[-2]), scale or 1 / math.sqrt(q.shape[-1])
    flat = flattened(program, parts)
    scores = program.empty(math.prod(size[:3]), *size[3:])
    times(program, flat[0], flat[1].transpose(1, 2), scores, factor)
    hidden = additive(mask, is_causal, size[3:])
    if hidden is not None:
        program.do(scores.add_, hidden)
    weights = scores if p == 0.0 else program.empty(*scores.shape)
    program.do(torch.softmax, scores, -1, out=weights)
    kept = None if p == 0.0 else program.kept(size, p).view(weights.shape)
    if kept is not None:
        program.do(torch.mul, weights, kept, out=scores)
    used = weights if kept is None else scores
    out = program.empty(len(used), used.shape[1], v.shape[-1])
    times(program, used, flat[2], out)

    def write(gradient: Tensor, is_own: bool) -> None:
        g = program.empty(*out.shape)
        program.do(g.view(gradient.shape).copy_, gradient)
        program.release(gradient, is_own)
        together = program.empty(3, *flat[0].shape) if packed(parts) is not None else None
        found = [program.empty(*part.shape) for part in flat] if together is None else list(together.unbind())
        times(program, used.transpose(1, 2), g, found[2])
        for_scores = program.empty(*weights.shape)
        times(program, g, flat[2].transpose(1, 2), for_scores)
        if kept is not None:
            program.do(for_scores.mul_, kept)
        program.do(softmax_backward, for_scores, weights, -1, torch.float32, grad_input=for_scores)
        times(program, for_scores, flat[1], found[0], factor)
        times(program, for_scores.transpose(1, 2), flat[0], found[1], factor)
        program.release(for_scores, True)
        program.release(g, True)
        hand_back(program, parts, found, together)

    trained = any(part.is_trained for part in parts)
    return program.backwards(Value(out.view(*q.shape[:-1], -1), trained, is_free=True), write)


def times(program: Program, a: Tensor, b: Tensor, out: Tensor, factor: float = 1.0) -> None:
    """Writes out = factor · a b of very many small matrices."""
    if program.by_numpy:
        program.do(np.matmul, a.numpy(), b.numpy(), out=out.numpy())
        if factor != 1.0:
            program.do(out.mul_, factor)
    elif factor == 1.0:
        program.do(torch.bmm, a, b, out=out)
    else:
        program.do(torch.baddbmm, out, a, b, beta=0.0, alpha=factor, out=out)


softmax_backward = torch.ops.aten._softmax_backward_data.out


def packed(parts: tuple[Value, ...]) -> Value | None:
    """The [W, 3, B, heads, T, d] that the three are parts of, if they are."""
    if any(part.of is None for part in parts):
        return None
    whole = [part.of[0] for part in parts if part.of is not None]
    places = [part.of[1] for part in parts if part.of is not None]
    same = whole[0] is whole[1] is whole[2] and places == [0, 1, 2] and whole[0].tensor.shape[1] == 3
    return whole[0] if same else None


def flattened(program: Program, parts: tuple[Value, ...]) -> list[Tensor]:
    """Queries, keys and values as matrices [W · B · heads, T, d], one behind the other; of one tensor, by one copy."""
    whole = packed(parts)
    if whole is not None:
        turned = whole.tensor.transpose(0, 1)
        flat = program.empty(*turned.shape)
        program.do(flat.copy_, turned)
        program.release(whole.tensor, whole.is_free)
        return list(flat.view(3, -1, *turned.shape[-2:]).unbind())
    found = []
    for part in parts:
        flat = program.empty(*part.tensor.shape)
        program.do(flat.copy_, part.tensor)
        found.append(flat.view(-1, *flat.shape[-2:]))
    return found


def hand_back(program: Program, parts: tuple[Value, ...], found: list[Tensor], together: Tensor | None) -> None:
    """Hands gradients [W · B · heads, T, d] back to what made queries, keys and values."""
    whole = packed(parts)
    if whole is None or together is None:
        for part, gradient in zip(parts, found, strict=True):
            if part.is_trained:
                part.given.append((gradient.view(part.tensor.shape), True))
        return
    into = program.like(whole.tensor)
    turned = into.transpose(0, 1)
    program.do(turned.copy_, together.view(turned.shape))
    program.release(together, True)
    whole.given.append((into, True))


def additive(mask: Tensor | None, is_causal: bool, size: tuple[int, ...]) -> Tensor | None:
    """What is added to scores: −∞ where nothing is to be seen."""
    if is_causal:
        mask = torch.ones(size, dtype=torch.bool).tril()
    if mask is None or mask.is_floating_point():
        return mask
    return torch.zeros(size).masked_fill(~mask, -math.inf)


def multihead(
    program: Program, module: nn.MultiheadAttention, name: str, x: Value, mask: Tensor | None, is_causal: bool
) -> Value:
    """Writes torch.nn.MultiheadAttention of x with itself; name: of the module, with a point behind it."""
    if not module._qkv_same_embed_dim or module.bias_k is not None or module.add_zero_attn:
        raise NotStackable("this kind of MultiheadAttention")
    three = linear(
        program, x, f"{name}in_proj_weight", f"{name}in_proj_bias" if module.in_proj_bias is not None else None
    )
    w, first, second, _ = three.tensor.shape
    split = reshaped(program, three, (w, first, second, 3, module.num_heads, module.head_dim))
    whole = permuted(program, split, (0, 3, 1, 4, 2, 5) if module.batch_first else (0, 3, 2, 4, 1, 5))
    q, k, v = (part_of(program, whole, place) for place in range(3))
    if mask is not None and mask.dtype == torch.bool:
        mask = ~mask
    mixed = attention(program, (q, k, v), mask, module.dropout, is_causal)
    turned = permuted(program, mixed, (0, 1, 3, 2, 4) if module.batch_first else (0, 3, 1, 2, 4))
    flat = reshaped(program, turned, (w, first, second, -1))
    return linear(program, flat, f"{name}out_proj.weight", bias_of(module.out_proj, f"{name}out_proj."))


def part_of(program: Program, whole: Value, place: int) -> Value:
    part = selected(program, whole, (slice(None), place))
    part.of = whole, place
    return part


def bias_of(module: nn.Module, name: str) -> str | None:
    return f"{name}bias" if getattr(module, "bias", None) is not None else None


def encoder_layer(
    program: Program, module: nn.TransformerEncoderLayer, name: str, x: Value, mask: Tensor | None, is_causal: bool
) -> Value:
    """Writes a torch.nn.TransformerEncoderLayer as operations."""
    kinds = {functional.relu: "relu", functional.gelu: "gelu"}
    kind = kinds.get(module.activation)
    if kind not in ACTIVATIONS:
        raise NotStackable("an encoder with another activation")

    def norm(x: Value, part: str) -> Value:
        return normed(program, getattr(module, part), f"{name}{part}.", x, module.norm_first)

    def mixed(x: Value, entering: Value) -> Value:
        out = multihead(program, module.self_attn, f"{name}self_attn.", entering, mask, is_causal)
        return added(program, x, out, module.dropout1.p)

    def perceptron(x: Value, entering: Value) -> Value:
        inner = linear(program, entering, f"{name}linear1.weight", bias_of(module.linear1, f"{name}linear1."))
        inner = dropped(program, activation(program, inner, kind), module.dropout.p)
        out = linear(program, inner, f"{name}linear2.weight", bias_of(module.linear2, f"{name}linear2."))
        return added(program, x, out, module.dropout2.p)

    x.is_free = False  # it has two users
    if module.norm_first:
        x = mixed(x, norm(x, "norm1"))
        x.is_free = False
        return perceptron(x, norm(x, "norm2"))
    x = norm(mixed(x, x), "norm1")
    x.is_free = False
    return norm(perceptron(x, x), "norm2")


def normed(program: Program, module: nn.Module, name: str, x: Value, for_products: bool) -> Value:
    """Writes a torch.nn.LayerNorm over the last dimension."""
    if type(module) is not nn.LayerNorm or len(module.normalized_shape) != 1:
        raise NotStackable("another norm")
    weight = f"{name}weight" if module.elementwise_affine else None
    return layer_norm(program, x, module.normalized_shape[0], module.eps, weight, bias_of(module, name), for_products)


def encoder(
    program: Program, module: nn.TransformerEncoder, name: str, x: Value, mask: Tensor | None, is_causal: bool
) -> Value:
    """Writes a torch.nn.TransformerEncoder as operations."""
    for k, layer in enumerate(module.layers):
        if type(layer) is not nn.TransformerEncoderLayer:
            raise NotStackable("an encoder of other layers")
        x = encoder_layer(program, layer, f"{name}layers.{k}.", x, mask, is_causal)
    return x if module.norm is None else normed(program, module.norm, f"{name}norm.", x, False)
