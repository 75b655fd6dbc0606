"""Calls of the kernels for 2×2 maxima, behind a ReLU or a batch norm and a ReLU, and for the way back."""

from __future__ import annotations

import torch
from torch import Tensor

from walktalk.core.lazy import later
from walktalk.learning.kernels.tiles import Normalized, in_hand, tiles_of

norm_kernels = later("walktalk.learning.kernels.norm_kernels")
pool_kernels = later("walktalk.learning.kernels.pool_kernels")

NUMBERS = 4096  # in a tile
THROUGH_NORM = 2048  # in a tile of the kernels that have four pixels of a norm in hand for each
ROUNDS = 4  # tiles of which one program adds up the gradients of a norm


def pooled(y: Tensor) -> Tensor:
    """The largest of every 2×2 pixels of [W, B, H, W', C]."""
    z = halved(y)
    _, _, h, w, channels = y.shape
    pixels, tile = z[..., 0].numel(), NUMBERS // channels
    pool_kernels.pool[(tiles_of(pixels, tile),)](y, z, pixels, h // 2, w // 2, channels, tile)
    return z


def halved(y: Tensor) -> Tensor:
    """Memory for one number of every 2×2 pixels."""
    rows, b, h, w, channels = y.shape
    if h % 2 or w % 2:
        raise ValueError(f"images of {h} × {w} pixels have no whole 2 × 2 pieces")
    return torch.empty((rows, b, h // 2, w // 2, channels), dtype=y.dtype, device=y.device)


def backward(
    dz: Tensor, y: Tensor, is_pooled: bool, *, relu: bool, with_sums: bool = True
) -> tuple[Tensor, Tensor | None]:
    """The gradient for y, of a pool, or before the ReLU that gave y, or both, pool last; and Σ of it. dz: dense."""
    rows, b, h, w, channels = dz.shape
    pixels, tile = b * h * w, NUMBERS // channels
    count = tiles_of(pixels, tile)
    dy = torch.empty_like(y)
    partials = torch.empty((rows, count, channels), device=y.device) if with_sums else None
    pool_kernels.back[(count, rows)](
        dz, y, dy, dy if partials is None else partials, pixels, h, w, channels, tile, is_pooled, relu, with_sums
    )
    return dy, None if partials is None else partials.sum(1)


def normalized(y: Tensor, norm: Normalized) -> Tensor:
    """2×2 maxima of relu(norm(y)), which itself is written nowhere."""
    z = halved(y)
    rows, b, h, w, channels = z.shape
    tile = THROUGH_NORM // channels
    pool_kernels.normalize_pool[(tiles_of(b * h * w, tile), rows)](
        y, norm.scale, norm.shift, z, b * h * w, h, w, channels, tile
    )
    return z


def normalized_backward(dz: Tensor, y: Tensor, norm: Normalized) -> tuple[Tensor, Tensor]:
    """The gradient for y, and those for β and γ, [2, W, C]; dz, behind the pool, must be dense."""
    rows, b, h, w, channels = dz.shape
    pixels, tile = b * h * w, THROUGH_NORM // channels
    count = tiles_of(pixels, tile * ROUNDS)
    partials = torch.empty((rows, count, 2, channels), device=y.device)
    given = dz, y, norm.scale, norm.shift, norm.mean, norm.inverse
    pool_kernels.sums_through_pool[(count, rows)](*given, partials, pixels, h, w, channels, tile, ROUNDS)
    totals = torch.empty((2, rows, channels), device=y.device)
    norm_kernels.batch_sums[(rows,)](partials, totals, count, channels, in_hand(channels))
    dy = torch.empty_like(y)
    grid = tiles_of(pixels, tile), rows
    pool_kernels.normalize_backward_through_pool[grid](*given, totals, dy, pixels, h, w, channels, tile)
    return dy, totals
