"""Calls of the kernels on whole models."""

from __future__ import annotations

from torch import Tensor

from walktalk.learning.stacked.fused import row_kernels
from walktalk.learning.stacked.fused.tiles import tiles_of

BLOCK = 2048


def combine(
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
