"""How kernels cut up their work, and whether there can be any."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

PIXELS = 4096  # of one channel each, in a tile of an element-wise kernel
MOST_TOKENS = MOST_IN_HEAD = 128  # of an attention: all are in hand at once


@cache
def is_possible() -> bool:
    """Whether Triton is installed: it comes with torch's builds for GPUs."""
    return importlib.util.find_spec("triton") is not None


def filled(size: int, least: int = 16) -> int:
    """The power of two that a size fits into."""
    return max(least, 1 << (size - 1).bit_length())


@dataclass
class Normalized:
    """A batch norm at work: [W, C] each."""

    scale: Tensor
    shift: Tensor
    mean: Tensor
    inverse: Tensor

    @classmethod
    def empty(cls, rows: int, channels: int, device: torch.device) -> Normalized:
        return cls(*torch.empty((4, rows, channels), device=device))


class Tile(NamedTuple):
    """How a convolution is cut up: taps in one program, pixels in a tile, warps, stages of the loads' pipeline.

    Taps are 1, some of a row of the kernel (4 or 8: the row and empty ones) or, of the gradient for weights, 12 (three
    rows).
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


def in_hand(channels: int) -> int:
    """How many tiles' sums a program adds up at a time."""
    return min(64, PIXELS // channels)


class Order:
    """Says from which end the rows of a wave are gone through.

    Each kernel begins where the one before it ended, because that is what is still in the GPU's cache.
    """

    def __init__(self) -> None:
        self.back = 0
        self.alternates = True

    def next(self) -> int:
        """1 for from the last row to the first."""
        self.back = 1 - self.back if self.alternates else 0
        return self.back


order = Order()
