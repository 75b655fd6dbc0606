"""Layers as operations of a program: what they do, and how their gradients are found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walktalk.learning.stacked.compiled.program import Program, Value, dense, viewed
from walktalk.learning.stacked.products import ones_and_zeros
from walktalk.learning.stacked.tensors import NotStackable

relu_backward = torch.ops.aten.threshold_backward.grad_input


def product(program: Program, a: Tensor, b: Tensor, out: Tensor) -> None:
    """Writes out = a b of matrices [W, …]; of one pair by the shorter way, whose bits are the same."""
    if program.by_numpy:
        program.do(np.matmul, a.numpy(), b.numpy(), out=out.numpy())
    elif len(a) == 1:
        program.do(torch.mm, a[0], b[0], out=out[0])
    else:
        program.do(torch.bmm, a, b, out=out)


def linear(program: Program, x: Value, name: str, bias_name: str | None) -> Value:
    """x Wᵀ + b, of the parameters with these names; with what a layer norm has left to do."""
    whole = program.weights[name]
    weight = whole.flatten(2)
    x = dense(program, x)
    flat = x.tensor.view(program.rows, -1, x.tensor.shape[-1])
    out = program.empty(program.rows, flat.shape[1], weight.shape[1])
    used = weight
    bias = None if bias_name is None else program.weights[bias_name]
    if x.left is not None:
        used, bias = folded(program, weight, bias, *x.left)
    product(program, flat, used.transpose(1, 2), out)
    if bias is not None:
        program.do(out.add_, bias.unsqueeze(1))
    places = program.place(name), None if bias_name is None else program.place(bias_name)

    def write(gradient: Tensor, is_own: bool) -> None:
        g = gradient.reshape(out.shape) if gradient.is_contiguous() else contiguous(program, gradient).view(out.shape)
        for_weight = program.empty(*weight.shape) if places[0] is None else places[0].flatten(2)
        if places[0] is not None or x.left is not None:
            product(program, g.transpose(1, 2), flat, for_weight)
        for_bias = places[1]
        if for_bias is None and x.left is not None:
            for_bias = program.empty(program.rows, weight.shape[1])
        if for_bias is not None:
            program.do(torch.sum, g, 1, out=for_bias)
        if x.left is not None:
            unfolded(program, weight, for_weight, for_bias, *x.left)
        if x.is_trained:
            before = program.empty(*flat.shape)
            product(program, g, used, before)
            x.given.append((before.view(x.tensor.shape), True))
        program.release(gradient, is_own)

    result = Value(out.view(*x.tensor.shape[:-1], -1), is_free=True)
    return program.backwards(result, write)


def folded(
    program: Program, weight: Tensor, bias: Tensor | None, scale_name: str, shift_name: str | None
) -> tuple[Tensor, Tensor | None]:
    """Weights and biases of (x · s + t) Wᵀ + b as a layer of x alone: as `products.FoldedLinear`."""
    scaled = torch.empty_like(weight)
    program.do(torch.mul, weight, program.weights[scale_name].unsqueeze(1), out=scaled)
    if shift_name is None:
        return scaled, bias
    between, added = torch.empty_like(weight), torch.empty(weight.shape[:2])
    program.do(torch.mul, weight, program.weights[shift_name].unsqueeze(1), out=between)
    program.do(torch.sum, between, 2, out=added)  # no product with a vector: its bits depend on how many there are
    if bias is not None:
        program.do(added.add_, bias)
    return scaled, added


def unfolded(
    program: Program,
    weight: Tensor,
    for_weight: Tensor,
    for_bias: Tensor | None,
    scale_name: str,
    shift_name: str | None,
) -> None:
    """Turns the gradients of `folded` weights into those of the layer's and of the layer norm's."""
    between = program.empty(*weight.shape)
    for_scale = program.place(scale_name)
    if for_scale is not None:
        program.do(torch.mul, for_weight, weight, out=between)
        program.do(torch.sum, between, 1, out=for_scale)
    program.do(for_weight.mul_, program.weights[scale_name].unsqueeze(1))
    if shift_name is not None and for_bias is not None:
        program.do(for_weight.addcmul_, for_bias.unsqueeze(2), program.weights[shift_name].unsqueeze(1))
        for_shift = program.place(shift_name)
        if for_shift is not None:
            program.do(torch.mul, weight, for_bias.unsqueeze(2), out=between)
            program.do(torch.sum, between, 1, out=for_shift)
    program.release(between, True)


def contiguous(program: Program, tensor: Tensor) -> Tensor:
    """The tensor itself where it is dense, else a dense copy of it."""
    if tensor.is_contiguous():
        return tensor
    out = program.empty(*tensor.shape)
    program.do(out.copy_, tensor)
    return out


def layer_norm(
    program: Program, x: Value, size: int, eps: float, name: str | None, bias_name: str | None, for_products: bool
) -> Value:
    """Writes a layer norm over the last dimension.

    for_products: whether linear layers alone see it, which then do the rest.
    """
    x = dense(program, x)
    shape, (one, zero) = [size], ones_and_zeros((size,))
    normal, box = program.empty(*x.tensor.shape), [torch.empty(0), torch.empty(0)]

    def there() -> None:
        found, *box[:] = torch.native_layer_norm(x.tensor, shape, one, zero, eps)
        normal.copy_(found)

    def write_normal(gradient: Tensor, is_own: bool) -> None:
        g = contiguous(program, gradient)
        others = x.given[0][0] if len(x.given) == 1 else None  # as that of a shortcut around all this
        into = program.empty(*x.tensor.shape)

        def back() -> None:
            before = layer_norm_backward(g, x.tensor, shape, *box, one, zero, [True, False, False])[0]
            into.copy_(before) if others is None else torch.add(before, others, out=into)

        program.operations.append(back)
        if others is not None:
            x.given = []
        x.given.append((into, True))
        program.release(gradient, is_own)

    program.operations.append(there)
    plain = Value(normal, x.is_trained)
    if name is None:
        return program.backwards(plain, write_normal)
    # Several rows of samples in one: of a few numbers, as of a perceptron, the weights would be more.
    if for_products and x.tensor.dim() > 3:
        plain.left, plain.is_trained = (name, bias_name), True
        return program.backwards(plain, write_normal if x.is_trained else lambda gradient, is_own: None)
    return scaled(program, program.backwards(plain, write_normal), name, bias_name)


layer_norm_backward = torch.ops.aten.native_layer_norm_backward


def scaled(program: Program, x: Value, name: str, bias_name: str | None) -> Value:
    """Writes x · s + t, both of the last dimension alone."""
    wide = (program.rows, *[1] * (x.tensor.dim() - 2), x.tensor.shape[-1])
    scale, out = program.weights[name].view(wide), program.empty(*x.tensor.shape)
    if bias_name is None:
        program.do(torch.mul, x.tensor, scale, out=out)
    else:
        program.do(torch.addcmul, program.weights[bias_name].view(wide), x.tensor, scale, out=out)
    for_scale, for_shift = program.place(name), None if bias_name is None else program.place(bias_name)
    flat = (program.rows, -1, x.tensor.shape[-1])

    def write(gradient: Tensor, is_own: bool) -> None:
        g = contiguous(program, gradient)
        if for_shift is not None:
            program.do(torch.sum, g.view(flat), 1, out=for_shift)
        if for_scale is not None:
            between = program.empty(*g.shape)
            program.do(torch.mul, g, x.tensor, out=between)
            program.do(torch.sum, between.view(flat), 1, out=for_scale)
            program.release(between, True)
        if x.is_trained:
            into = g if is_own else program.empty(*g.shape)
            program.do(torch.mul, g, scale, out=into)
            x.given.append((into, True))

    return program.backwards(Value(out, is_free=True), write)


Activation = tuple[Callable[..., Any], Callable[..., Any], bool]  # there, back, and whether that looks at the result

ACTIVATIONS: dict[str, Activation] = {
    "relu": (torch.relu, lambda g, y, grad_input: relu_backward(g, y, 0, grad_input=grad_input), True),
    "tanh": (torch.tanh, torch.ops.aten.tanh_backward.grad_input, True),
    "sigmoid": (torch.sigmoid, torch.ops.aten.sigmoid_backward.grad_input, True),
    "gelu": (torch._C._nn.gelu, torch.ops.aten.gelu_backward.grad_input, False),
    "silu": (torch._C._nn.silu, torch.ops.aten.silu_backward.grad_input, False),
}


def activation(program: Program, x: Value, kind: str) -> Value:
    there, back, by_result = ACTIVATIONS[kind]
    in_place = by_result and x.is_free
    out = x.tensor if in_place else program.like(x.tensor)
    if kind == "relu" and in_place:
        program.do(torch.relu_, out)
    elif kind == "relu":
        program.do(torch.clamp_min, x.tensor, 0, out=out)
    else:
        program.do(there, x.tensor, out=out)
    seen = out if by_result else x.tensor

    def write(gradient: Tensor, is_own: bool) -> None:
        into = gradient if is_own else program.like(x.tensor)
        program.do(back, gradient, seen, grad_input=into)
        x.given.append((into, True))

    return program.backwards(Value(out, x.is_trained, is_free=not by_result), write)


def dropped(program: Program, x: Value, p: float) -> Value:
    if p == 0.0:
        return x
    out, kept = x.tensor if x.is_free else program.like(x.tensor), program.kept(x.tensor.shape, p)
    program.do(torch.mul, x.tensor, kept, out=out)

    def write(gradient: Tensor, is_own: bool) -> None:
        into = gradient if is_own else program.like(gradient)
        program.do(torch.mul, gradient, kept, out=into)
        x.given.append((into, True))

    return program.backwards(Value(out, x.is_trained, is_free=True), write)


def added(program: Program, x: Value, y: Value, p: float = 0.0) -> Value:
    """Writes x plus y, or plus a dropout of y; of the same shape, or one is repeated along dimensions of 1."""
    shape = tuple(max(pair) for pair in zip(x.tensor.shape, y.tensor.shape, strict=True))
    free = next((v.tensor for v in (y, x) if v.is_free and v.tensor.shape == shape), None)
    out = program.empty(*shape) if free is None else free
    kept = None if p == 0.0 else program.kept(y.tensor.shape, p)
    if kept is None:
        program.do(torch.add, x.tensor, y.tensor, out=out)
    else:
        program.do(torch.addcmul, x.tensor, y.tensor, kept, out=out)

    def write(gradient: Tensor, is_own: bool) -> None:
        for value in (x, y):
            if not value.is_trained:
                continue
            if value is y and kept is not None:
                into = program.like(gradient)
                program.do(torch.mul, gradient, kept, out=into)
                value.given.append((into, True))
            elif value.tensor.shape == gradient.shape:
                value.given.append((gradient, False))
            else:
                own = value.tensor.shape
                dims = [k for k, size in enumerate(gradient.shape) if own[k] != size]
                into = program.empty(*own)
                program.do(torch.sum, gradient, dims, keepdim=True, out=into)
                value.given.append((into, True))

    return program.backwards(Value(out, x.is_trained or y.is_trained, is_free=True), write)


def averaged(program: Program, x: Value, dims: tuple[int, ...], keepdim: bool, is_sum: bool) -> Value:
    """Writes a mean or a sum over these dimensions of [W, …]."""
    out = torch.sum(x.tensor, dims, keepdim=keepdim)
    program.do(torch.sum if is_sum else torch.mean, x.tensor, dims, keepdim=keepdim, out=out)
    kept = [1 if k in dims else size for k, size in enumerate(x.tensor.shape)]
    share = 1.0 if is_sum else 1 / math.prod(x.tensor.shape[k] for k in dims)

    def write(gradient: Tensor, is_own: bool) -> None:
        into = program.empty(*x.tensor.shape)
        program.do(torch.mul, gradient.reshape(kept).expand(x.tensor.shape), share, out=into)
        x.given.append((into, True))

    return program.backwards(Value(out, x.is_trained), write)


def embedding(program: Program, places: Value, name: str) -> Value:
    weight = program.weights[name]
    rows, words, wide = weight.shape
    offsets = (torch.arange(rows) * words).view(-1, *[1] * (places.tensor.dim() - 1))
    found = torch.empty_like(places.tensor)
    out = program.empty(found.numel(), wide)
    program.do(torch.add, places.tensor, offsets, out=found)
    program.do(torch.index_select, weight.view(-1, wide), 0, found.view(-1), out=out)
    place = program.place(name)

    def write(gradient: Tensor, is_own: bool) -> None:
        if place is not None:
            program.do(place.zero_)
            program.do(place.view(-1, wide).index_add_, 0, found.view(-1), contiguous(program, gradient).view(-1, wide))

    return program.backwards(Value(out.view(*found.shape, wide), place is not None), write)


def patches(program: Program, x: Value, size: tuple[int, int], name: str, bias_name: str | None) -> Value:
    """Writes a convolution that looks at every pixel once, of images that are not trained."""
    if x.is_trained:
        raise NotStackable("patches of something that is trained")
    (high, wide), (w, b, c, h, v) = size, x.tensor.shape
    down, across = h // high, v // wide
    cut = x.tensor[..., : down * high, : across * wide].unfold(3, high, high).unfold(4, wide, wide)
    flat = program.empty(w, b, down * across, c * high * wide)
    into = flat.view(w, b, down, across, c, high, wide)
    program.do(into.copy_, cut.permute(0, 1, 3, 4, 2, 5, 6))
    out = linear(program, Value(flat, is_trained=False), name, bias_name)
    whole = viewed(program, out, out.tensor.view(w, b, down, across, -1), lambda g: g.reshape(out.tensor.shape))
    return viewed(program, whole, whole.tensor.permute(0, 1, 4, 2, 3), lambda g: g.permute(0, 1, 3, 4, 2))
