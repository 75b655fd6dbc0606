"""Layers for many models at once: the same arithmetic as torch.nn's, with weights that differ from row to row.

Activations have one of two layouts. *Stacked*, [W, B, …]: row, sample, rest; for linear layers, which become batched
matrix products. *Folded*, [B, W·C, …]: the rows side by side in the channel dimension; for convolutions, which become
one grouped convolution, and for normalizations and pools, which then need no change at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from walktalk.codecs import hashed
from walktalk.learning.models import PaddedShortcut


class NotStackable(Exception):
    """This module or function has no stacked form here; the whole model goes through vmap instead."""


@dataclass
class Laid:
    """An activation and its layout."""

    tensor: Tensor
    rows: int  # W
    is_folded: bool = False

    def stacked(self) -> Tensor:
        """As [W, B, …]."""
        if not self.is_folded:
            return self.tensor
        b, wc = self.tensor.shape[:2]
        return self.tensor.view(b, self.rows, wc // self.rows, *self.tensor.shape[2:]).transpose(0, 1)

    def folded(self) -> Tensor:
        """As [B, W·C, …]."""
        if self.is_folded:
            return self.tensor
        w, b, c = self.tensor.shape[:3]
        return self.tensor.transpose(0, 1).reshape(b, w * c, *self.tensor.shape[3:])

    def like(self, tensor: Tensor) -> Laid:
        return Laid(tensor, self.rows, self.is_folded)


@dataclass
class Pass:
    """What one pass through the model needs beside the data."""

    tensors: dict[str, Tensor]  # name -> [W, *shape]
    training: bool
    keys: Tensor | None = None  # of the rows, for dropout
    step: int = 0
    draws: int = 0  # how many dropouts this pass has had
    channels_last: bool = False  # whether convolutions work on channels-last memory
    with_buffers: bool = True  # whether running statistics are kept; else every batch has its own
    fused: torch.dtype | None = None  # of activations in the kernels of `fused`; None: those are not used


class BatchedLinear(torch.autograd.Function):
    """x Wᵀ + b for every row. Autograd's own backward would leave the weight's gradient transposed in memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        if bias is None:
            return torch.bmm(x, weight.transpose(1, 2))
        return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        for_x = torch.bmm(gradient, weight) if ctx.needs_input_grad[0] else None
        return for_x, torch.bmm(gradient.transpose(1, 2), x), gradient.sum(1) if ctx.has_bias else None


def linear(x: Laid, module: nn.Linear, get: Callable[[str], Tensor], run: Pass) -> Laid:
    inputs = x.stacked()
    flat = inputs.reshape(x.rows, -1, inputs.shape[-1])
    weight, bias = get("weight"), None if module.bias is None else get("bias")
    if torch.is_autocast_enabled(flat.device.type):  # torch casts in its own functions only
        out = torch.bmm(flat, weight.transpose(1, 2))
        out = out if bias is None else out + bias.unsqueeze(1)
    else:
        out = BatchedLinear.apply(flat, weight, bias)  # type: ignore[no-untyped-call]
    return Laid(out.view(*inputs.shape[:-1], -1), x.rows)


def convolution(x: Laid, module: Any, get: Callable[[str], Tensor], run: Pass) -> Laid:
    if module.padding_mode != "zeros":
        raise NotStackable(f"padding_mode {module.padding_mode}")
    weight = get("weight").flatten(0, 1)
    bias = None if module.bias is None else get("bias").flatten()
    inputs, two = x.folded(), isinstance(module, nn.Conv2d)
    if two and run.channels_last:
        inputs, weight = (t.contiguous(memory_format=torch.channels_last) for t in (inputs, weight))
    call = functional.conv2d if two else functional.conv1d
    out = call(inputs, weight, bias, module.stride, module.padding, module.dilation, module.groups * x.rows)
    return Laid(out, x.rows, True)


def batch_norm(x: Laid, module: Any, get: Callable[[str], Tensor], run: Pass) -> Laid:
    """Statistics of each row alone; running statistics are the row's own and are brought up to date in place."""
    mean = var = None
    if module.track_running_stats and run.with_buffers:
        mean, var = get("running_mean"), get("running_var")
        if module.momentum is None:
            raise NotStackable("BatchNorm with a cumulative average")
    weight = get("weight").reshape(-1) if module.affine else None
    bias = get("bias").reshape(-1) if module.affine else None
    use_batch = run.training or mean is None
    # Brought up to date through copies: the row's own are views with gaps, and autograd must not see them change.
    flat_mean = None if mean is None else mean.flatten().clone()
    flat_var = None if var is None else var.flatten().clone()
    out = functional.batch_norm(
        x.folded(), flat_mean, flat_var, weight, bias, use_batch, module.momentum or 0.0, module.eps
    )
    if run.training and mean is not None and var is not None and flat_mean is not None and flat_var is not None:
        with torch.no_grad():
            mean.copy_(flat_mean.view_as(mean))
            var.copy_(flat_var.view_as(var))
    return Laid(out, x.rows, True)


def group_norm(x: Laid, module: nn.GroupNorm, get: Callable[[str], Tensor], run: Pass) -> Laid:
    weight = get("weight").reshape(-1) if module.affine else None
    bias = get("bias").reshape(-1) if module.affine else None
    out = functional.group_norm(x.folded(), module.num_groups * x.rows, weight, bias, module.eps)
    return Laid(out, x.rows, True)


def layer_norm(x: Laid, module: nn.LayerNorm, get: Callable[[str], Tensor], run: Pass) -> Laid:
    inputs = x.stacked()
    out = functional.layer_norm(inputs, module.normalized_shape, None, None, module.eps)
    if module.elementwise_affine:
        shape = (x.rows, *[1] * (inputs.dim() - 1 - len(module.normalized_shape)), *module.normalized_shape)
        out = out * get("weight").view(shape)
        if module.bias is not None:
            out = out + get("bias").view(shape)
    return Laid(out, x.rows)


def embedding(x: Laid, module: nn.Embedding, get: Callable[[str], Tensor], run: Pass) -> Laid:
    if module.max_norm is not None or module.scale_grad_by_freq or module.sparse:
        raise NotStackable("this kind of Embedding")
    weight, places = get("weight"), x.stacked()
    offsets = torch.arange(x.rows, device=places.device).view(-1, *[1] * (places.dim() - 1)) * weight.shape[1]
    found = functional.embedding(places + offsets, weight.flatten(0, 1))
    if module.padding_idx is not None:  # that entry is looked up but never trained
        found = torch.where((places != module.padding_idx).unsqueeze(-1), found, found.detach())
    return Laid(found, x.rows)


def dropout(x: Laid, module: nn.Dropout, get: Callable[[str], Tensor], run: Pass) -> Laid:
    """The mask is a hash of the row's key, the step and the place, so it does not depend on the other rows."""
    if not run.training or module.p == 0.0:
        return x
    if run.keys is None:
        raise NotStackable("dropout without keys")
    inputs = x.stacked()
    run.draws += 1
    here = run.keys * 31 + (run.step * 1009 + run.draws)  # a stream of its own for every dropout of every step
    places = torch.arange(inputs[0].numel(), device=inputs.device)
    bits = hashed(here.view(-1, 1), places.view(1, -1)).view_as(inputs)
    keep = bits >= int(module.p * 2**31)
    return Laid(inputs * keep / (1.0 - module.p), x.rows)


def flatten(x: Laid, start: int = 1, end: int = -1) -> Laid:
    """torch.flatten from a dimension that is not the batch's."""
    if start < 1:
        raise NotStackable("flatten of the batch dimension")
    return Laid(x.stacked().flatten(start + 1, end if end < 0 else end + 1), x.rows)


def flatten_module(x: Laid, module: nn.Flatten, get: Callable[[str], Tensor], run: Pass) -> Laid:
    return flatten(x, module.start_dim, module.end_dim)


def as_it_is(x: Laid, module: nn.Module, get: Callable[[str], Tensor], run: Pass) -> Laid:
    """Element-wise: the layout does not matter."""
    return x.like(module(x.tensor))


def on_folded(x: Laid, module: nn.Module, get: Callable[[str], Tensor], run: Pass) -> Laid:
    """Pools: every channel by itself."""
    if not x.is_folded and isinstance(module, nn.AdaptiveAvgPool2d) and module.output_size in (1, (1, 1)):
        return x.like(x.tensor.mean((-2, -1), keepdim=True))  # of one channel, wherever it lies
    return Laid(module(x.folded()), x.rows, True)


def padded_shortcut(x: Laid, module: PaddedShortcut, get: Callable[[str], Tensor], run: Pass) -> Laid:
    return Laid(module.stacked(x.folded(), x.rows, run.channels_last), x.rows, True)


ELEMENT_WISE = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.SELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Tanh,
    nn.Sigmoid,
    nn.Softplus,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Hardtanh,
    nn.Identity,
)
POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.MaxPool1d, nn.AvgPool1d)

LAYERS: dict[type[nn.Module], Callable[[Laid, Any, Callable[[str], Tensor], Pass], Laid]] = {
    nn.Linear: linear,
    nn.Conv2d: convolution,
    nn.Conv1d: convolution,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
    nn.Embedding: embedding,
    nn.Dropout: dropout,
    nn.Flatten: flatten_module,
    PaddedShortcut: padded_shortcut,
    **dict.fromkeys(ELEMENT_WISE, as_it_is),
    **dict.fromkeys(POOLS, on_folded),
}


def layer_of(module: nn.Module) -> Callable[[Laid, Any, Callable[[str], Tensor], Pass], Laid] | None:
    """The stacked form of a layer. A subclass has its parent's, if it changes nothing but how weights start."""
    for kind in type(module).__mro__:
        if kind in LAYERS:
            return LAYERS[kind]
        if "forward" in vars(kind) or "_conv_forward" in vars(kind):
            return None
    return None
