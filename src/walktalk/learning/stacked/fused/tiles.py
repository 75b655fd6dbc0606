"""How kernels cut up their work."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Tile(NamedTuple):
    """How a convolution is cut up: taps in one program, pixels in a tile, warps, stages of the loads' pipeline.

    Taps are 1, 4 (a row of the kernel and an empty one) or, of the gradient for weights, 12 (all three rows).
    """

    taps: int
    pixels: int
    warps: int
    stages: int


class Block(NamedTuple):
    """How a product of wide matrices is cut up: rows and columns of a tile, how far it runs at a time, and as above."""

    m: int
    n: int
    k: int
    warps: int
    stages: int


def precision(x: Tensor) -> str:
    return "ieee" if x.dtype == torch.float32 else "tf32"


def tiles_of(pixels: int, tile: int) -> int:
    return -(-pixels // tile)
