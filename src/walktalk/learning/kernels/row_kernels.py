"""Triton kernels: whole models, as rows of a matrix, combined and copied."""

import triton
import triton.language as tl

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.


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
    """Copies out of the rows of these numbers the columns from `start` on, one after another."""
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


# Triton kernel: a step of SGD on many models at once.

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.


@triton.jit
def sgd(
    weights,
    gradients,
    velocity,
    lr,
    size,
    decay,
    momentum,
    HAS_MOMENTUM: tl.constexpr,
    NESTEROV: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A step of torch.optim.SGD with a learning rate of its own for every number, in one pass over memory."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = at < size
    w, g = tl.load(weights + at, mask=real), tl.load(gradients + at, mask=real)
    g += decay * w
    if HAS_MOMENTUM:
        v = momentum * tl.load(velocity + at, mask=real) + g
        tl.store(velocity + at, v, mask=real)
        g = g + momentum * v if NESTEROV else v
    tl.store(weights + at, w - tl.load(lr + at, mask=real) * g, mask=real)


@triton.jit
def sgd_by_row(
    weights,
    gradients,
    velocity,
    lr,
    size,
    decay,
    momentum,
    HAS_MOMENTUM: tl.constexpr,
    NESTEROV: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A step of SGD for one parameter of all models, [W, size], with a learning rate [W] of each."""
    row = tl.program_id(1).to(tl.int64)
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real, at = here < size, row * size + here
    w, g = tl.load(weights + at, mask=real), tl.load(gradients + at, mask=real)
    g += decay * w
    if HAS_MOMENTUM:
        v = momentum * tl.load(velocity + at, mask=real) + g
        tl.store(velocity + at, v, mask=real)
        g = g + momentum * v if NESTEROV else v
    tl.store(weights + at, w - tl.load(lr + row) * g, mask=real)


@triton.jit
def sgd_between(
    weights,
    gradients,
    lr,
    matrix,
    outs,
    width,
    states,
    states_in,
    states_out,
    state_width,
    start,
    size,
    decay,
    momentum,
    HAS_MOMENTUM: tl.constexpr,
    NESTEROV: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A step of SGD for one parameter of all models, written to rows of a matrix.

    Velocities are read and written in rows of another. `start` is the column of both at which the parameter begins.
    """
    row = tl.program_id(1).to(tl.int64)
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real, at = here < size, row * size + here
    w, g = tl.load(weights + at, mask=real), tl.load(gradients + at, mask=real)
    g += decay * w
    if HAS_MOMENTUM:
        v = momentum * tl.load(states + tl.load(states_in + row) * state_width + start + here, mask=real) + g
        tl.store(states + tl.load(states_out + row) * state_width + start + here, v, mask=real)
        g = g + momentum * v if NESTEROV else v
    tl.store(matrix + tl.load(outs + row) * width + start + here, w - tl.load(lr + row) * g, mask=real)
