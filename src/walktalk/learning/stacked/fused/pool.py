"""Calls of the kernels for 2×2 maxima, and for the way back through them and a ReLU."""

from __future__ import annotations

import torch
from torch import Tensor

from walktalk.learning.stacked.fused import pool_kernels
from walktalk.learning.stacked.fused.tiles import tiles_of

NUMBERS = 4096  # in a tile


def pooled(y: Tensor) -> Tensor:
    """The largest of every 2×2 pixels of [W, B, H, W', C]."""
    rows, b, h, w, channels = y.shape
    if h % 2 or w % 2:
        raise ValueError(f"images of {h} × {w} pixels have no whole 2 × 2 pieces")
    z = torch.empty((rows, b, h // 2, w // 2, channels), dtype=y.dtype, device=y.device)
    pixels, tile = z[..., 0].numel(), NUMBERS // channels
    pool_kernels.pool[(tiles_of(pixels, tile),)](y, z, pixels, h // 2, w // 2, channels, tile)
    return z


def before_relu(dz: Tensor, y: Tensor, is_pooled: bool, with_sums: bool = True) -> tuple[Tensor, Tensor | None]:
    """The gradient before the ReLU that gave y, from the one behind it, or behind the pool that follows; and Σ of it.

    dz must be dense.
    """
    rows, b, h, w, channels = dz.shape
    pixels, tile = b * h * w, NUMBERS // channels
    count = tiles_of(pixels, tile)
    dy = torch.empty_like(y)
    partials = torch.empty((rows, count, channels), device=y.device) if with_sums else None
    pool_kernels.back[(count, rows)](
        dz, y, dy, dy if partials is None else partials, pixels, h, w, channels, tile, is_pooled, True, with_sums
    )
    return dy, None if partials is None else partials.sum(1)
