"""Triton kernels: weights of convolutions as taps, and gradients for taps as gradients for weights."""

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.
import triton
import triton.language as tl


@triton.jit
def to_taps(weights, taps, real, entering, leaving, TAPS: tl.constexpr, BJ: tl.constexpr, BN: tl.constexpr):
    """[W, leaving, real, TAPS] in float32 to [W, TAPS, entering, leaving] in the activations' type; channels that are
    not real are zeros."""
    row = tl.program_id(2).to(tl.int64)
    j, n = tl.program_id(0) * BJ + tl.arange(0, BJ), tl.program_id(1) * BN + tl.arange(0, BN)
    at = row * TAPS * real * leaving + n[None, :] * (TAPS * real) + j[:, None]
    found = tl.load(weights + at, mask=(j < TAPS * real)[:, None], other=0.0)
    at = row * TAPS * entering * leaving + (j % TAPS * entering + j // TAPS)[:, None] * leaving + n[None, :]
    tl.store(taps + at, found.to(taps.dtype.element_ty), mask=(j < TAPS * entering)[:, None])


@triton.jit
def to_weights(
    splits, weights, pieces, real, entering, leaving, TAPS: tl.constexpr, BJ: tl.constexpr, BN: tl.constexpr
):
    """[W, pieces, TAPS, entering, leaving], summed over the pieces in order, to [W, leaving, real, TAPS]."""
    row = tl.program_id(2).to(tl.int64)
    j, n = tl.program_id(0) * BJ + tl.arange(0, BJ), tl.program_id(1) * BN + tl.arange(0, BN)
    there, size = (j < TAPS * real)[:, None], TAPS * entering * leaving
    at = (j % TAPS * entering + j // TAPS)[:, None] * leaving + n[None, :]
    total = tl.zeros((BJ, BN), tl.float32)
    for piece in tl.range(0, pieces):
        total += tl.load(splits + (row * pieces + piece) * size + at, mask=there, other=0.0)
    tl.store(weights + row * TAPS * real * leaving + n[None, :] * (TAPS * real) + j[:, None], total, mask=there)
