"""Triton kernels: maxima of 2×2 pixels and the way back through a ReLU, of many models at once; layouts as before."""

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.
import triton
import triton.language as tl


@triton.jit
def pool(y, z, pixels, ho, wo, C: tl.constexpr, BLOCK: tl.constexpr):
    """z [pixels, C]: of every 2×2 pixels of y the largest; images of ho × wo pixels of z lie one after another."""
    p, n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, C)
    real = (p < pixels)[:, None]
    corner = ((p // wo) * 2 * (2 * wo) + (p % wo) * 2)[:, None] * C + n[None, :]
    one = tl.load(y + corner, mask=real, other=0.0)
    two = tl.load(y + corner + C, mask=real, other=0.0)
    three = tl.load(y + corner + 2 * wo * C, mask=real, other=0.0)
    four = tl.load(y + corner + (2 * wo + 1) * C, mask=real, other=0.0)
    most = tl.maximum(tl.maximum(one, two), tl.maximum(three, four))
    tl.store(z + p[:, None] * C + n[None, :], most, mask=real)


@triton.jit
def back(
    dz,
    y,
    dy,
    partials,
    pixels,
    ho,
    wo,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    POOL: tl.constexpr,
    RELU: tl.constexpr,
    SUMS: tl.constexpr,
):
    """The gradient before a ReLU, and before a pool behind it: it goes to the first of the largest.

    y: what the ReLU gave. A row has `pixels` of dz; with SUMS, each tile's Σdy: the gradient for a bias.
    """
    tile, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    p, n = tile * BLOCK + tl.arange(0, BLOCK), tl.arange(0, C)
    real = (p < pixels)[:, None]
    g = tl.load(dz + (row * pixels + p)[:, None] * C + n[None, :], mask=real, other=0.0).to(tl.float32)
    if POOL:
        corner = (row * pixels * 4 + (p // wo) * 2 * (2 * wo) + (p % wo) * 2)[:, None] * C + n[None, :]
        below = 2 * wo * C
        one = tl.load(y + corner, mask=real, other=0.0)
        two = tl.load(y + corner + C, mask=real, other=0.0)
        three = tl.load(y + corner + below, mask=real, other=0.0)
        four = tl.load(y + corner + below + C, mask=real, other=0.0)
        most = tl.maximum(tl.maximum(one, two), tl.maximum(three, four))
        if RELU:
            g = tl.where(most > 0, g, 0.0)
        first, second = one == most, two == most
        third = three == most
        taken = g.to(dy.dtype.element_ty)
        none = tl.zeros_like(taken)
        tl.store(dy + corner, tl.where(first, taken, none), mask=real)
        tl.store(dy + corner + C, tl.where(second & (first == 0), taken, none), mask=real)
        tl.store(dy + corner + below, tl.where(third & (first == 0) & (second == 0), taken, none), mask=real)
        last = (first == 0) & (second == 0) & (third == 0)
        tl.store(dy + corner + below + C, tl.where(last, taken, none), mask=real)
    else:
        here = (row * pixels + p)[:, None] * C + n[None, :]
        g = tl.where(tl.load(y + here, mask=real, other=0.0) > 0, g, 0.0)
        taken = g.to(dy.dtype.element_ty)
        tl.store(dy + here, taken, mask=real)
    if SUMS:
        at = (row * tl.num_programs(0) + tile) * C + n
        tl.store(partials + at, tl.sum(taken.to(tl.float32), 0))
