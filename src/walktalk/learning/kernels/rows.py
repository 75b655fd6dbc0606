"""Calls of the kernels on whole models."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from walktalk.core.lazy import later
from walktalk.learning.kernels.tiles import tiles_of

row_kernels = later("walktalk.learning.kernels.row_kernels")

BLOCK = 2048
STEP = (2048, 4)  # numbers that one program of SGD has, and its warps


def combine_rows(
    data: Tensor,
    outs: Tensor,
    sources: Tensor,
    weights: Tensor,
    starts: Tensor,
    parts: Tensor | None = None,
    of: int = 1,
) -> None:
    """Row outs[i] = Σ_k weights[k] · row sources[k], over k from starts[i] to starts[i + 1]; no source is an out.

    parts: where parts[k] is no less than 0, term k has only the numbers parts[k], parts[k] + of, … of its row.
    """
    width = data.shape[1]
    grid = (tiles_of(width, BLOCK) * len(outs),)
    given = weights if parts is None else parts  # some tensor must be given
    row_kernels.combine[grid](
        data, outs, sources, weights, starts, given, len(outs), len(sources), width, parts is not None, of, BLOCK
    )


def keep_part(data: Tensor, outs: Tensor, sources: Tensor, first: int, of: int) -> None:
    """Row outs[i] = numbers first, first + of, … of row sources[i], and zeros in between; no source is an out."""
    width = data.shape[1]
    grid = tiles_of(width, BLOCK), len(outs)
    row_kernels.keep_part[grid](data, outs, sources, width, first, of, BLOCK)


def gather(matrix: Tensor, numbers: Tensor, into: Tensor, start: int) -> None:
    """into[i] becomes the columns from `start` on of row numbers[i]; into: dense, [W, size]."""
    size = into.shape[1]
    grid = tiles_of(size, BLOCK), len(numbers)
    row_kernels.gather[grid](matrix, numbers, into, matrix.shape[1], start, size, BLOCK)


def scatter(content: Tensor, matrix: Tensor, numbers: Tensor, start: int) -> None:
    """The columns from `start` on of row numbers[i] become content[i]; content: dense, [W, size]."""
    size = content.shape[1]
    grid = tiles_of(size, BLOCK), len(numbers)
    row_kernels.scatter[grid](content, numbers, matrix, matrix.shape[1], start, size, BLOCK)


def spread_out(rows: Tensor, sizes: tuple[int, ...], vector: Tensor) -> None:
    """Rows [W, P] into a vector, parameter after parameter, of these sizes; one kernel, however many there are."""
    tables = blocks_of(sizes, rows.device)
    grid = len(tables[0]), len(rows)
    row_kernels.spread_out[grid](rows, vector, *tables, len(rows), rows.stride(0), BLOCK)


def spread_over(numbers: Tensor, sizes: tuple[int, ...], vector: Tensor) -> None:
    """One number per row [W] at all places of the row in such a vector."""
    tables = blocks_of(sizes, numbers.device)
    row_kernels.spread_over[len(tables[0]), len(numbers)](numbers, vector, *tables, len(numbers), BLOCK)


@lru_cache(maxsize=64)
def blocks_of(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Tables of blocks: where its parameter starts in a row, the parameter's size, where in it the block begins.

    Made in the passes that come before a CUDA graph is recorded, and kept: the graph reads it whenever it is replayed.
    """
    lines, start = [], 0
    for size in sizes:
        lines += [(start, size, offset) for offset in range(0, size, BLOCK)]
        start += size
    starts, lengths, offsets = torch.tensor(lines, dtype=torch.int64).T.contiguous().to(device)
    return starts, lengths, offsets


def sgd(
    weights: Tensor, gradients: Tensor, velocity: Tensor, lr: Tensor, decay: float, momentum: float, nesterov: bool
) -> None:
    """A step of SGD, in place; the velocity is not looked at without momentum."""
    row_kernels.sgd[(tiles_of(weights.numel(), 2048),)](
        weights, gradients, velocity, lr, weights.numel(), decay, momentum, momentum != 0.0, nesterov, 2048
    )


def sgd_by_row(
    weights: Tensor, gradients: Tensor, velocity: Tensor, lr: Tensor, decay: float, momentum: float, nesterov: bool
) -> None:
    """A step of SGD, in place, for one parameter [W, size] and a learning rate [W] of each row."""
    rows, size = weights.shape
    settings = decay, momentum, momentum != 0.0, nesterov, STEP[0]
    row_kernels.sgd_by_row[(tiles_of(size, STEP[0]), rows)](
        weights, gradients, velocity, lr, size, *settings, num_warps=STEP[1]
    )


def sgd_between(
    weights: Tensor,
    gradients: Tensor,
    lr: Tensor,
    into: tuple[Tensor, Tensor],
    states: tuple[Tensor, Tensor, Tensor] | None,
    start: int,
    decay: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """A step of SGD from a parameter [W, size], which begins at column `start`, into rows of a matrix.

    into: the matrix and the rows' numbers. states: the velocities' matrix, and the rows to read and to write there.
    """
    (matrix, outs), (rows, size) = into, weights.shape
    kept, read, written = states if states is not None else (matrix, outs, outs)
    row_kernels.sgd_between[(tiles_of(size, 2048), rows)](
        weights,
        gradients,
        lr,
        matrix,
        outs,
        matrix.shape[1],
        kept,
        read,
        written,
        kept.shape[1],
        start,
        size,
        decay,
        momentum,
        momentum != 0.0,
        nesterov,
        2048,
    )
