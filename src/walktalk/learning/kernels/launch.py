"""Calls of the kernels: shapes, memory and tile sizes."""

from __future__ import annotations

from math import isqrt

import torch
from torch import Tensor

from walktalk.core.lazy import later
from walktalk.learning.kernels import wide
from walktalk.learning.kernels.tiles import PIXELS, Normalized, Tile, in_hand, order, precision, tiles_of

conv_kernels = later("walktalk.learning.kernels.conv_kernels")
norm_kernels = later("walktalk.learning.kernels.norm_kernels")

# By the number of channels that the products run over; measured on an H200 with benchmarks/fused_convolutions.py.
FORWARD = {4: Tile(4, 256, 4, 2), 16: Tile(1, 256, 4, 3), 32: Tile(1, 256, 4, 3), 64: Tile(1, 128, 4, 3)}
BACKWARD = {16: Tile(1, 256, 4, 4), 32: Tile(1, 128, 4, 4), 64: Tile(1, 64, 4, 3)}
WEIGHTS = {4: Tile(12, 256, 4, 2), 16: Tile(12, 64, 4, 3), 32: Tile(4, 64, 4, 3), 64: Tile(1, 64, 4, 3)}
FORWARD5 = {4: Tile(8, 256, 4, 2), 16: Tile(1, 256, 4, 3), 32: Tile(1, 256, 4, 3), 64: Tile(1, 128, 4, 3)}
BACKWARD5 = {16: Tile(1, 256, 4, 4), 32: Tile(1, 256, 4, 3), 64: Tile(1, 128, 8, 3)}
WEIGHTS5 = {4: Tile(8, 256, 4, 2), 16: Tile(8, 64, 4, 3), 32: Tile(8, 32, 4, 3), 64: Tile(1, 64, 4, 3)}
TILES = {9: (FORWARD, BACKWARD, WEIGHTS), 25: (FORWARD5, BACKWARD5, WEIGHTS5)}  # by the taps of a kernel
ROUNDS = 4  # tiles of which one program adds up the gradients of a norm
TURNED = (64, 64)  # a tile of the kernels that turn weights into taps and back
CHUNK = {1: 1024, 2: 1024, 4: 2048, 8: 2048, 12: 4096}  # pixels that a program of the gradient for weights adds up


def as_taps(weight: Tensor, dtype: torch.dtype, channels: int) -> Tensor:
    """[W, C', C, k, k] to [W, k², C, C'], with zeros for channels that only fill up."""
    rows, leaving, entering = weight.shape[:3]
    count = weight.shape[3] * weight.shape[4]
    taps = torch.empty((rows, count, channels, leaving), dtype=dtype, device=weight.device)
    conv_kernels.to_taps[turned(channels, count, leaving, rows)](
        weight.contiguous(), taps, entering, channels, leaving, count, *turning(leaving)
    )
    return taps


def as_weights(splits: Tensor, shape: torch.Size, into: Tensor | None) -> Tensor:
    """Sums of pieces [W, pieces, k², C, C'] as weights of that shape, [W, C', C, k, k], or as the memory `into`."""
    rows, pieces, count, channels, leaving = splits.shape
    weights = torch.empty(shape, device=splits.device) if into is None else into
    conv_kernels.to_weights[turned(shape[2], count, leaving, rows)](
        splits, weights, pieces, shape[2], channels, leaving, count, *turning(leaving)
    )
    return weights


def turning(leaving: int) -> tuple[int, int]:
    """A tile of the kernels that turn weights into taps and back."""
    return TURNED[0], min(TURNED[1], leaving)


def turned(channels: int, taps: int, leaving: int, rows: int) -> tuple[int, int, int]:
    """How many such tiles there are."""
    tile = turning(leaving)
    return tiles_of(taps * channels, tile[0]), leaving // tile[1], rows


def forward(
    x: Tensor, taps: Tensor, stride: int, with_sums: bool, bias: Tensor | None = None, relu: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Convolution of x [W, B, H, W', C] (one row for all, if its stride is 0), and its tiles' sums."""
    _, b, h, wd, entering = x.shape
    rows, leaving = len(taps), taps.shape[3]
    if wide.is_wide(entering, leaving):
        return wide.forward(x, taps, bias, relu, with_sums)
    ho, wo = -(-h // stride), -(-wd // stride)
    tile = TILES[taps.shape[1]][0][entering]
    count = tiles_of(b * ho * wo, tile.pixels)
    y = torch.empty((rows, b, ho, wo, leaving), dtype=x.dtype, device=x.device)
    partials = torch.empty((rows, count, 2, leaving), device=x.device) if with_sums else None
    conv_kernels.conv_forward[(count, rows)](
        x,
        taps,
        taps if bias is None else bias.contiguous(),
        y,
        y if partials is None else partials,
        x.stride(0) // entering,
        b,
        order.next(),
        h,
        wd,
        ho,
        wo,
        entering,
        leaving,
        stride,
        isqrt(taps.shape[1]),
        tile.taps,
        tile.pixels,
        bias is not None,
        relu,
        with_sums,
        precision(x),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return y, partials


def statistics(
    partials: Tensor,
    gamma: Tensor,
    beta: Tensor,
    pixels: int,
    eps: float,
    momentum: float,
    running: tuple[Tensor, Tensor] | None,
) -> Normalized:
    rows, count, _, channels = partials.shape
    norm = Normalized.empty(rows, channels, partials.device)
    mean, var = running if running is not None else (norm.mean, norm.mean)
    norm_kernels.batch_statistics[(rows,)](
        partials,
        gamma.contiguous(),
        beta.contiguous(),
        norm.scale,
        norm.shift,
        norm.mean,
        norm.inverse,
        mean,
        var,
        mean.stride(0),
        count,
        pixels,
        eps,
        momentum,
        channels,
        in_hand(channels),
        running is not None,
    )
    return norm


def normalize(y: Tensor, norm: Normalized, around: Tensor | None, new_before: int) -> Tensor:
    """relu(norm(y)), plus what came around by a shortcut: as it is, or with every second pixel and new channels."""
    rows, b, ho, wo, channels = y.shape
    tile = PIXELS // channels
    z = torch.empty_like(y)
    kind = "none" if around is None else "same" if around.shape == y.shape else "padded"
    side = y if around is None else around
    norm_kernels.normalize[(tiles_of(b * ho * wo, tile), rows)](
        y,
        norm.scale,
        norm.shift,
        side,
        z,
        b,
        order.next(),
        ho,
        wo,
        side.shape[2],
        side.shape[3],
        channels,
        kind,
        side.shape[4],
        new_before,
        tile,
    )
    return z


def sums(partials: Tensor) -> Tensor:
    """Gradients for β and γ, [2, W, C]."""
    rows, count, _, channels = partials.shape
    out = torch.empty((2, rows, channels), device=partials.device)
    norm_kernels.batch_sums[(rows,)](partials, out, count, channels, in_hand(channels))
    return out


def gradient_sums(dz: Tensor, z: Tensor, y: Tensor, norm: Normalized) -> Tensor:
    rows, channels, pixels = len(y), y.shape[4], y[0, ..., 0].numel()
    tile = PIXELS // channels
    count = tiles_of(pixels, tile * ROUNDS)
    partials = torch.empty((rows, count, 2, channels), device=y.device)
    norm_kernels.gradient_sums[(count, rows)](
        dz, z, y, norm.mean, norm.inverse, partials, pixels, order.next(), channels, tile, ROUNDS
    )
    return sums(partials)


def normalize_backward(g: Tensor, z: Tensor | None, y: Tensor, norm: Normalized, totals: Tensor) -> Tensor:
    """The gradient for y; g is still to be cut off where z is zero, if z is given."""
    rows, channels, pixels = len(y), y.shape[4], y[0, ..., 0].numel()
    tile = PIXELS // channels
    dy = torch.empty_like(y)
    norm_kernels.normalize_backward[(tiles_of(pixels, tile), rows)](
        g,
        y if z is None else z,
        y,
        norm.scale,
        norm.mean,
        norm.inverse,
        totals,
        dy,
        pixels,
        order.next(),
        channels,
        tile,
        z is not None,
    )
    return dy


def for_weights(x: Tensor, dy: Tensor, stride: int, shape: torch.Size, into: Tensor | None = None) -> Tensor:
    """The gradient for the weights, of that shape, [W, C', C, k, k]; x may have more channels, which only fill up.

    `into`: dense memory of that shape where it is to be.
    """
    _, b, h, wd, entering = x.shape
    rows, _, ho, wo, leaving = dy.shape
    if wide.is_wide(entering, leaving):
        return as_weights(wide.for_weights(x, dy), shape, into)
    side, taps = shape[3], shape[3] * shape[4]
    tile = TILES[taps][2][entering]
    groups, chunk = 1 if tile.taps == 12 else side * tiles_of(side, tile.taps), CHUNK[tile.taps]
    split = tiles_of(b * ho * wo, chunk)  # whatever the number of rows: a row's sums have one order in every wave
    out = torch.empty((rows, split, taps, entering, leaving), device=x.device)
    conv_kernels.conv_weights[(groups * split, rows)](
        x,
        dy,
        out,
        x.stride(0) // entering,
        b,
        split,
        chunk,
        order.next(),
        h,
        wd,
        ho,
        wo,
        entering,
        leaving,
        stride,
        side,
        4 if tile.taps == 12 else tile.taps,
        tile.taps == 12,
        tile.pixels,
        precision(x),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return as_weights(out, shape, into)


def for_input(
    dy: Tensor,
    taps: Tensor,
    shape: torch.Size,
    stride: int,
    *,
    before: tuple[Tensor, Normalized] | None = None,
    around: tuple[Tensor, Tensor, int] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The gradient for a convolution's input of that shape.

    `before` (y, its norm): the input was relu(norm(y)); the gradient is the one before that ReLU, and comes with the
    sums that the norm's own backward pass needs. `around` (dz, z, new channels before the old ones): what came back by
    the shortcut is added.
    """
    rows, b, ho, wo, leaving = dy.shape
    _, _, h, wd, entering = shape
    if wide.is_wide(entering, leaving):
        return wide.for_input(dy, taps), None
    tile = TILES[taps.shape[1]][1][leaving]
    tile = tile if stride == 1 else tile._replace(taps=1)
    count = tiles_of(b * h * wd, tile.pixels) if stride == 1 else 4 * tiles_of(b * ho * wo, tile.pixels)
    dx = torch.empty((rows, b, h, wd, entering), dtype=dy.dtype, device=dy.device)
    partials = torch.empty((rows, count, 2, entering), device=dy.device) if before is not None else None
    y, norm = before if before is not None else (dy, None)
    dz, z, new = around if around is not None else (dy, dy, 0)
    kind = "mask" if before is not None else "add" if around is not None else "none"
    some = dy if norm is None else norm.scale
    conv_kernels.conv_backward[(count, rows)](
        dy,
        taps,
        dx,
        dy if partials is None else partials,
        y,
        some,
        some if norm is None else norm.shift,
        some if norm is None else norm.mean,
        some if norm is None else norm.inverse,
        dz,
        z,
        b,
        order.next(),
        h,
        wd,
        ho,
        wo,
        leaving,
        entering,
        stride,
        isqrt(taps.shape[1]),
        tile.taps,
        tile.pixels,
        kind,
        dz.shape[4],
        new,
        precision(dy),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return dx, None if partials is None else sums(partials)
