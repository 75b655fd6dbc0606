"""Calls of the kernels for convolutions with many channels."""

from __future__ import annotations

import torch
from torch import Tensor

from walktalk.core.lazy import later
from walktalk.learning.kernels.tiles import Block, precision, tiles_of

wide_kernels = later("walktalk.learning.kernels.wide_kernels")

NARROW = 64  # channels up to which the kernels of `launch` have tiles
CHUNK = 2048  # pixels that one program of the gradient for weights adds up

# By the pixels of one image, of which small ones have many channels; measured with benchmarks/fused_wide.py.
FORWARD = Block(128, 256, 64, 8, 3)
BACKWARD = Block(128, 128, 64, 4, 3)
WEIGHTS = Block(128, 256, 64, 8, 3)


def is_wide(entering: int, leaving: int) -> bool:
    return max(entering, leaving) > NARROW


def fitted(block: Block, pixels: int, columns: int, run: int) -> Block:
    """A block that is no larger than what there is."""
    rows = max(64, min(block.m, 1 << (pixels - 1).bit_length()))
    return block._replace(m=rows, n=min(block.n, columns), k=min(block.k, run))


def forward(x: Tensor, taps: Tensor, bias: Tensor | None, relu: bool, with_sums: bool) -> tuple[Tensor, Tensor | None]:
    """Convolution of x [W, B, H, W', C], and its tiles' sums."""
    _, b, h, wd, entering = x.shape
    rows, leaving = len(taps), taps.shape[3]
    pixels = b * h * wd
    block = fitted(FORWARD, pixels, leaving, entering)
    count = tiles_of(pixels, block.m)
    y = torch.empty((rows, b, h, wd, leaving), dtype=x.dtype, device=x.device)
    partials = torch.empty((rows, count, 2, leaving), device=x.device) if with_sums else None
    wide_kernels.wide_forward[(count * (leaving // block.n), rows)](
        x,
        taps,
        taps if bias is None else bias.contiguous(),
        y,
        y if partials is None else partials,
        x.stride(0) // entering,
        pixels,
        h,
        wd,
        entering,
        leaving,
        bias is not None,
        relu,
        with_sums,
        *block[:3],
        precision(x),
        num_warps=block.warps,
        num_stages=block.stages,
    )
    return y, partials


def for_input(dy: Tensor, taps: Tensor) -> Tensor:
    """The gradient for a convolution's input."""
    rows, b, h, wd, leaving = dy.shape
    entering, pixels = taps.shape[2], b * h * wd
    block = fitted(BACKWARD, pixels, entering, leaving)
    dx = torch.empty((rows, b, h, wd, entering), dtype=dy.dtype, device=dy.device)
    wide_kernels.wide_backward[(tiles_of(pixels, block.m) * (entering // block.n), rows)](
        dy,
        taps,
        dx,
        pixels,
        h,
        wd,
        entering,
        leaving,
        *block[:3],
        precision(dy),
        num_warps=block.warps,
        num_stages=block.stages,
    )
    return dx


def for_weights(x: Tensor, dy: Tensor) -> Tensor:
    """The gradient for the taps in pieces, [W, pieces, 9, C, C']."""
    _, b, h, wd, entering = x.shape
    rows, leaving, pixels = len(dy), dy.shape[4], b * h * wd
    block = WEIGHTS._replace(m=min(WEIGHTS.m, entering), n=min(WEIGHTS.n, leaving))
    split = tiles_of(pixels, CHUNK)  # whatever the number of rows: a row's sums have one order in every wave
    out = torch.empty((rows, split, 9, entering, leaving), device=x.device)
    wide_kernels.wide_weights[(9 * split * (entering // block.m) * (leaving // block.n), rows)](
        x,
        dy,
        out,
        x.stride(0) // entering,
        pixels,
        split,
        CHUNK,
        h,
        wd,
        entering,
        leaving,
        *block[:3],
        precision(x),
        num_warps=block.warps,
        num_stages=block.stages,
    )
    return out
