"""Activations of many models at once, and what a pass through them needs.

Activations have one of two layouts. *Stacked*, [W, …]: the row, then what one model has; for linear layers, which
become batched matrix products, and for attention. *Folded*, [B, W·C, …]: the rows side by side in the channel
dimension; for convolutions, which become one grouped convolution, and for normalizations and pools, which then need no
change at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from walktalk.learning.samples import all_bits_by_numpy, counted
from walktalk.learning.task import sharing_copy, still_parts
from walktalk.transforms.codecs import hashed

FEW_PARTS = 8
AT_ONCE = 2**16  # numbers of a mask
STREAMS = 2**16  # values of a draw: a hash of 64 bits is four of them


class NotStackable(Exception):
    """This module or function has no stacked form here; the whole model goes through another form instead."""


@dataclass(slots=True)
class StackedTensor:
    """An activation or a parameter of many models, and how its rows lie."""

    tensor: Tensor
    rows: int  # W
    is_folded: bool = False
    parts: tuple[Tensor, ...] | None = None  # along the first dimension of a row, once somebody asked for one of them
    of: tuple[StackedTensor, int] | None = None  # what it is a part of along that dimension, and which one
    left: tuple[Tensor, Tensor | None] | None = None  # a layer norm's weights and biases [W, n], left to linear layers

    def stacked(self) -> Tensor:
        """The values as [W, …]."""
        if not self.is_folded:
            return self.tensor
        b, wc = self.tensor.shape[:2]
        return self.tensor.view(b, self.rows, wc // self.rows, *self.tensor.shape[2:]).transpose(0, 1)

    def folded(self) -> Tensor:
        """The values as [B, W·C, …]."""
        if self.is_folded:
            return self.tensor
        if self.rows == 1:
            return self.tensor.squeeze(0)
        w, b, c = self.tensor.shape[:3]
        return self.tensor.transpose(0, 1).reshape(b, w * c, *self.tensor.shape[3:])

    def joined(self) -> Tensor:
        """The values as [W·B, …]: for whatever does the same to every sample, the weights having no say."""
        return self.stacked().flatten(0, 1)

    def part(self, place: int) -> Tensor:
        """`tensor[:, place]`; of few, all are taken apart at once, so that their gradients are put together at once."""
        tensor = self.stacked()
        if tensor.shape[1] > FEW_PARTS:
            return tensor[:, place]
        if self.parts is None:
            self.parts = tensor.unbind(1)
        return self.parts[place]

    def like(self, tensor: Tensor) -> StackedTensor:
        return StackedTensor(tensor, self.rows, self.is_folded)


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
    places: dict[str, Tensor] | None = None  # where gradients are to be, for who can write them there at once

    def dropped(self, x: Tensor, p: float) -> Tensor:
        """Dropout on [W, …]: the mask is a hash of the row's key, the step and the place, and of no other row."""
        return x if not self.training or p == 0.0 else x * self.kept(x.shape, p, x)

    def added(self, x: Tensor, y: Tensor, p: float) -> Tensor:
        """x plus a dropout of y."""
        if not self.training or p == 0.0:
            return x + y
        if x.is_cuda or x.dtype != y.dtype:
            return x + self.dropped(y, p)
        out: Tensor = DroppedSum.apply(x, y, self.kept(y.shape, p, y))  # type: ignore[no-untyped-call]
        return out

    def kept(self, shape: tuple[int, ...], p: float, like: Tensor) -> Tensor:
        """What a dropout multiplies [W, …] by: 0 or 1 / (1 − p)."""
        if self.keys is None:
            raise NotStackable("dropout without keys")
        self.draws += 1
        return masks(stream(self.keys, self.step, self.draws), shape, p, like)


class DroppedSum(torch.autograd.Function):
    """The sum x + y · kept, in one pass over the memory."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, kept: Tensor) -> Tensor:
        ctx.save_for_backward(kept)
        return torch.addcmul(x, y, kept)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        return gradient, gradient * kept, None


def stream(keys: Tensor, step: int | Tensor, draw: int) -> Tensor:
    """The keys of a dropout's draws: others for every row, step, and dropout of a step."""
    return keys * 31 + (step * 1009 + draw)


def masks(keys: Tensor, shape: tuple[int, ...], p: float, like: Tensor) -> Tensor:
    """Factors of a dropout for each key [N], [N, …]: 0 or 1 / (1 − p)."""
    if not keys.is_cuda:
        return filled_with_masks(torch.empty(shape), keys, p).to(like.dtype)
    count, threshold = math.prod(shape[1:]), round(p * STREAMS)
    if threshold >= STREAMS:
        return like.new_zeros(shape)
    scale = STREAMS / (STREAMS - threshold)
    draws = drawn(keys, -(-count // 4)).view(torch.int16)[:, :count]
    # 0 for what is below the threshold, `scale` for the rest. By a clamp: comparisons take twice as long.
    mask = draws.float().sub_(threshold - STREAMS // 2 - 0.5).mul_(2 * scale).clamp_(0.0, scale)
    return mask.view(shape).to(like.dtype)


def filled_with_masks(out: Tensor, keys: Tensor, p: float) -> Tensor:
    """Fills such factors into [N, …] on a CPU; by numpy, which compares and multiplies in half of the time."""
    threshold = round(p * STREAMS)
    if threshold >= STREAMS:
        return out.zero_()
    count, least = out[0].numel(), np.int16(threshold - STREAMS // 2)  # as signed numbers
    scale, into = np.float32(STREAMS / (STREAMS - threshold)), out.view(len(keys), count).numpy()
    if count < AT_ONCE // 2:
        draws = drawn(keys, -(-count // 4)).numpy().view(np.int16)[:, :count]
        np.multiply(draws >= least, scale, out=into)
        return out
    numbers, counters = keys.numpy().view(np.uint64), remembered(-(-count // 4))
    for row, key in zip(into, numbers, strict=True):
        for start in range(0, count, AT_ONCE):  # a part that stays in the cache
            part = row[start : start + AT_ONCE]
            bits = all_bits_by_numpy(counters[start // 4 : (start + AT_ONCE) // 4] + key)
            np.multiply(bits.view(np.int16)[: len(part)] >= least, scale, out=part)
    return out


def drawn(keys: Tensor, count: int) -> Tensor:
    """Draws for each key [W] so many hashes of 64 bits, [W, count]."""
    if keys.is_cuda:
        return hashed(keys.view(-1, 1), torch.arange(count, device=keys.device).view(1, -1), bits=64)
    places = remembered(count) + keys.numpy().view(np.uint64).reshape(-1, 1)
    return torch.from_numpy(all_bits_by_numpy(places).view(np.int64))


remembered = lru_cache(maxsize=16)(counted)  # a model has few sizes of dropout


# A model as one flat row of numbers: first its parameters, then the float buffers that travel with it.


@dataclass(frozen=True)
class Entry:
    """One tensor of the model, and where it lies in the row."""

    name: str
    shape: torch.Size
    start: int
    end: int


class RowLayout:
    """Where every parameter and float buffer of a module lies.

    Buffers that are not floats (BatchNorm's count of batches) or not kept by the module itself (tables of angles in a
    transformer) do not travel; what is frozen, parameters and statistics, is left out too (`learning.task`). They
    stay as the template has them.
    """

    def __init__(self, module: nn.Module, with_buffers: bool = True) -> None:
        self.parameters: list[Entry] = []
        self.buffers: list[Entry] = []
        at = 0
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                self.parameters.append(Entry(name, parameter.shape, at, at + parameter.numel()))
                at += parameter.numel()
        self.parameter_width = at
        kept, still = set(module.state_dict()) if with_buffers else set(), still_parts(module)
        for name, buffer in module.named_buffers():
            if buffer.is_floating_point() and name in kept and name.rpartition(".")[0] not in still:
                self.buffers.append(Entry(name, buffer.shape, at, at + buffer.numel()))
                at += buffer.numel()
        self.width = at

    def row(self, module: nn.Module) -> Tensor:
        """The module's numbers as a row."""
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        flat = [tensors[entry.name].detach().float().reshape(-1) for entry in (*self.parameters, *self.buffers)]
        return torch.cat(flat) if flat else torch.zeros(0)

    def views(self, rows: Tensor, entries: list[Entry], offset: int = 0) -> dict[str, Tensor]:
        """Stacked tensors [W, *shape] that look into the rows; nothing is copied."""
        return {e.name: rows[:, e.start - offset : e.end - offset].view(len(rows), *e.shape) for e in entries}

    def spread_out(self, rows: Tensor) -> Tensor:
        """Parameters of rows [W, P] as one vector, parameter after parameter: each then is a dense [W, *shape].

        Rows are how models are stored and mixed; this is how they are trained. With gaps of a whole row between the
        weights of two models, a batched product takes up to three times as long.
        """
        return torch.cat([rows[:, e.start : e.end].reshape(-1) for e in self.parameters])

    def gather(self, vector: Tensor, rows: int) -> Tensor:
        """Turns such a vector back into rows [W, P]."""
        return torch.cat([part.reshape(rows, -1) for part in self.dense_views(vector, rows).values()], dim=1)

    def dense_views(self, vector: Tensor, rows: int) -> dict[str, Tensor]:
        """The stacked parameters [W, *shape] inside such a vector."""
        return {e.name: vector[rows * e.start : rows * e.end].view(rows, *e.shape) for e in self.parameters}

    def module(self, template: nn.Module, row: Tensor) -> nn.Module:
        """A plain module with a row's numbers; what is frozen is the template's own memory."""
        module = sharing_copy(template)
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        with torch.no_grad():
            for entry in (*self.parameters, *self.buffers):
                tensors[entry.name].copy_(row[entry.start : entry.end].view(entry.shape))
        return module
