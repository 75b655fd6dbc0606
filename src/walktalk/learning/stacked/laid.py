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
from torch import Tensor

from walktalk.codecs import hashed
from walktalk.learning.sampling import all_bits_by_numpy, counted

FEW_PARTS = 8
AT_ONCE = 2**16  # numbers of a mask
STREAMS = 2**16  # values of a draw: a hash of 64 bits is four of them


class NotStackable(Exception):
    """This module or function has no stacked form here; the whole model goes through another form instead."""


@dataclass(slots=True)
class Laid:
    """An activation, or a parameter, and its layout."""

    tensor: Tensor
    rows: int  # W
    is_folded: bool = False
    parts: tuple[Tensor, ...] | None = None  # along the first dimension of a row, once somebody asked for one of them
    of: tuple[Laid, int] | None = None  # what it is a part of along that dimension, and which one
    left: tuple[Tensor, Tensor | None] | None = None  # a layer norm's weights and biases [W, n], left to linear layers

    def stacked(self) -> Tensor:
        """As [W, …]."""
        if not self.is_folded:
            return self.tensor
        b, wc = self.tensor.shape[:2]
        return self.tensor.view(b, self.rows, wc // self.rows, *self.tensor.shape[2:]).transpose(0, 1)

    def folded(self) -> Tensor:
        """As [B, W·C, …]."""
        if self.is_folded:
            return self.tensor
        if self.rows == 1:
            return self.tensor.squeeze(0)
        w, b, c = self.tensor.shape[:3]
        return self.tensor.transpose(0, 1).reshape(b, w * c, *self.tensor.shape[3:])

    def joined(self) -> Tensor:
        """As [W·B, …]: for whatever does the same to every sample, the weights having no say."""
        return self.stacked().flatten(0, 1)

    def part(self, place: int) -> Tensor:
        """`tensor[:, place]`; of few, all are taken apart at once, so that their gradients are put together at once."""
        tensor = self.stacked()
        if tensor.shape[1] > FEW_PARTS:
            return tensor[:, place]
        if self.parts is None:
            self.parts = tensor.unbind(1)
        return self.parts[place]

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
    """x + y · kept, in one pass over the memory."""

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
    """For each key [N] what a dropout multiplies by, [N, …]: 0 or 1 / (1 − p)."""
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
    """The same on a CPU, into [N, …] that is there; by numpy, which compares and multiplies in half of the time."""
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
    """For each key [W] so many hashes of 64 bits, [W, count]."""
    if keys.is_cuda:
        return hashed(keys.view(-1, 1), torch.arange(count, device=keys.device).view(1, -1), bits=64)
    places = remembered(count) + keys.numpy().view(np.uint64).reshape(-1, 1)
    return torch.from_numpy(all_bits_by_numpy(places).view(np.int64))


remembered = lru_cache(maxsize=16)(counted)  # a model has few sizes of dropout
