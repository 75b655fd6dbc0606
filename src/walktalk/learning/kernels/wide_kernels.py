"""Triton kernels: 3×3 convolutions with many channels, of many models at once; layouts as in `conv_kernels`.

A tile is some pixels of one model times some new channels, and the product runs over taps and channels piece by piece,
so that any number of channels that is a multiple of a piece will do. Stride is 1. Sizes are arguments of the call and
not compiled in: one kernel serves all layers.
"""

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.
import triton
import triton.language as tl


@triton.jit
def wide_forward(
    x,
    taps,
    bias,
    y,
    partials,
    x_row,
    M,
    h,
    w,
    entering,
    leaving,
    BIAS: tl.constexpr,
    RELU: tl.constexpr,
    STATS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """y = conv(x) + bias, cut off below zero if RELU; with STATS, each tile's Σy and Σy²."""
    row = tl.program_id(1).to(tl.int64)
    across = leaving // BN
    tile, part = tl.program_id(0) // across, tl.program_id(0) % across
    m, n, k = tile * BM + tl.arange(0, BM), part * BN + tl.arange(0, BN), tl.arange(0, BK)
    py, px = (m // w) % h, m % w
    x += row * x_row * entering
    taps += row * (9 * entering * leaving)
    pieces = entering // BK
    acc = tl.zeros((BM, BN), tl.float32)
    for step in tl.range(0, 9 * pieces):
        tap = step // pieces
        dy, dx = tap // 3 - 1, tap % 3 - 1
        inside = (m < M) & (py + dy >= 0) & (py + dy < h) & (px + dx >= 0) & (px + dx < w)
        at = (m + dy * w + dx) * entering + (step % pieces) * BK
        a = tl.load(x + at[:, None] + k[None, :], mask=inside[:, None], other=0.0)
        b = tl.load(taps + (step * BK + k)[:, None] * leaving + n[None, :])
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    if BIAS:
        acc += tl.load(bias + row * leaving + n)[None, :]
    if RELU:
        acc = tl.maximum(acc, 0.0)
    result = acc.to(y.dtype.element_ty)
    real = (m < M)[:, None]
    tl.store(y + row * M * leaving + m[:, None] * leaving + n[None, :], result, mask=real)
    if STATS:
        kept = tl.where(real, result.to(tl.float32), 0.0)  # as the normalization will see it
        at = (row * (tl.num_programs(0) // across) + tile) * 2 * leaving + n
        tl.store(partials + at, tl.sum(kept, 0))
        tl.store(partials + at + leaving, tl.sum(kept * kept, 0))


@triton.jit
def wide_backward(
    dy,
    taps,
    dx,
    M,
    h,
    w,
    entering,
    leaving,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradient for a convolution's input [M, entering] from the one for its output [M, leaving]."""
    row = tl.program_id(1).to(tl.int64)
    across = entering // BN
    tile, part = tl.program_id(0) // across, tl.program_id(0) % across
    m, n, k = tile * BM + tl.arange(0, BM), part * BN + tl.arange(0, BN), tl.arange(0, BK)
    py, px = (m // w) % h, m % w
    dy += row * M * leaving
    taps += row * (9 * entering * leaving)
    pieces = leaving // BK
    acc = tl.zeros((BM, BN), tl.float32)
    for step in tl.range(0, 9 * pieces):
        tap = step // pieces
        up, left = tap // 3 - 1, tap % 3 - 1  # the output that saw this pixel by that tap lies the other way
        inside = (m < M) & (py - up >= 0) & (py - up < h) & (px - left >= 0) & (px - left < w)
        first = (step % pieces) * BK
        at = (m - up * w - left) * leaving + first
        a = tl.load(dy + at[:, None] + k[None, :], mask=inside[:, None], other=0.0)
        b = tl.load(taps + (tap * entering + n)[:, None] * leaving + (first + k)[None, :])
        acc = tl.dot(a, tl.trans(b), acc, input_precision=PRECISION)
    at = row * M * entering + m[:, None] * entering + n[None, :]
    tl.store(dx + at, acc.to(dx.dtype.element_ty), mask=(m < M)[:, None])


@triton.jit
def wide_weights(
    x,
    dy,
    out,
    x_row,
    M,
    split,
    chunk,
    h,
    w,
    entering,
    leaving,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradient for the taps, [W, split, 9, entering, leaving]: every split sums over its own pixels.

    A program has one tap, BM channels that enter and BN that leave, and runs over pixels, BK at a time.
    """
    program, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    across, down = leaving // BN, entering // BM
    part, rest = program % across, program // across
    block, rest = rest % down, rest // down
    tap, piece = rest % 9, rest // 9
    c, n, k = block * BM + tl.arange(0, BM), part * BN + tl.arange(0, BN), tl.arange(0, BK)
    up, left = tap // 3 - 1, tap % 3 - 1
    x += row * x_row * entering + (up * w + left) * entering
    dy += row * M * leaving
    acc = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(piece * chunk, tl.minimum((piece + 1) * chunk, M), BK):
        m = start + k
        py, px = (m // w) % h + up, m % w + left
        inside = (m < M) & (py >= 0) & (py < h) & (px >= 0) & (px < w)
        a = tl.load(x + m[:, None] * entering + c[None, :], mask=inside[:, None], other=0.0)
        d = tl.load(dy + m[:, None] * leaving + n[None, :], mask=(m < M)[:, None], other=0.0)
        acc = tl.dot(tl.trans(a), d, acc, input_precision=PRECISION)
    at = ((row * split + piece) * 9 + tap) * entering * leaving
    tl.store(out + at + c[:, None] * leaving + n[None, :], acc)
