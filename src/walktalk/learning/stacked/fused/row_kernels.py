"""Triton kernels: whole models, as rows of a matrix, combined and copied."""

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.
import triton
import triton.language as tl


@triton.jit
def combine(
    data,
    outs,
    sources,
    weights,
    starts,
    parts,
    rows,
    count,
    width,
    PARTS: tl.constexpr,
    OF: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Row outs[i] = Σ_k weights[k] · row sources[k], over k from starts[i] to starts[i + 1]; no source is an out.

    The same columns of all rows come one after another: what several combinations read is read from the cache.
    """
    i, at = tl.program_id(0) % rows, tl.program_id(0) // rows * BLOCK + tl.arange(0, BLOCK)
    real = at < width
    last = i + 1 == rows
    first, end = tl.load(starts + i), tl.where(last, count, tl.load(starts + i + tl.where(last, 0, 1)))
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.range(first, end):
        row = tl.load(sources + k)
        term = tl.load(weights + k) * tl.load(data + row * width + at, mask=real, other=0.0)
        if PARTS:
            part = tl.load(parts + k)
            term = tl.where((part < 0) | (at % OF == part), term, 0.0)
        total += term
    tl.store(data + tl.load(outs + i) * width + at, total, mask=real)


@triton.jit
def keep_part(data, outs, sources, width, FIRST: tl.constexpr, OF: tl.constexpr, BLOCK: tl.constexpr):
    """Row outs[i] = every so many-th number of row sources[i], and zeros in between; no source is an out."""
    at, i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1)
    found = tl.load(data + tl.load(sources + i) * width + at, mask=(at < width) & (at % OF == FIRST), other=0.0)
    tl.store(data + tl.load(outs + i) * width + at, found, mask=at < width)


@triton.jit
def gather(matrix, numbers, vector, width, start, size, BLOCK: tl.constexpr):
    """Of the rows of these numbers the columns from `start` on, one after another."""
    at, i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1).to(tl.int64)
    row = tl.load(numbers + i)
    found = tl.load(matrix + row * width + start + at, mask=at < size, other=0.0)
    tl.store(vector + i * size + at, found, mask=at < size)


@triton.jit
def scatter(vector, numbers, matrix, width, start, size, BLOCK: tl.constexpr):
    """The way back. Numbers that are there twice must have the same content."""
    at, i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1).to(tl.int64)
    row = tl.load(numbers + i)
    found = tl.load(vector + i * size + at, mask=at < size, other=0.0)
    tl.store(matrix + row * width + start + at, found, mask=at < size)


@triton.jit
def spread_out(rows, vector, starts, sizes, offsets, count, stride, BLOCK: tl.constexpr):
    """Rows as one vector, parameter after parameter. A program has BLOCK numbers of one parameter of one row: where the
    parameter starts in a row, its size, and where in it the program begins are in tables."""
    i, b = tl.program_id(1).to(tl.int64), tl.program_id(0)
    start, size, at = tl.load(starts + b), tl.load(sizes + b), tl.load(offsets + b) + tl.arange(0, BLOCK)
    found = tl.load(rows + i * stride + start + at, mask=at < size, other=0.0)
    tl.store(vector + count * start + i * size + at, found, mask=at < size)


@triton.jit
def spread_over(numbers, vector, starts, sizes, offsets, count, BLOCK: tl.constexpr):
    """One number of each row at all places that the row's parameters have in such a vector."""
    i, b = tl.program_id(1).to(tl.int64), tl.program_id(0)
    start, size, at = tl.load(starts + b), tl.load(sizes + b), tl.load(offsets + b) + tl.arange(0, BLOCK)
    number = tl.zeros((BLOCK,), tl.float32) + tl.load(numbers + i)
    tl.store(vector + count * start + i * size + at, number, mask=at < size)
