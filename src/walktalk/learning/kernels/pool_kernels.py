"""Triton kernels: maxima of 2×2 pixels, with the way back, alone or behind a ReLU or a batch norm and a ReLU.

Of many models at once; layouts as in `conv_kernels`.
"""

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
def largest(one, two, three, four):
    """The largest of four, and of each whether it is the first that is as large."""
    most = tl.maximum(tl.maximum(one, two), tl.maximum(three, four))
    first = one == most
    second = (two == most) & (first == 0)
    third = (three == most) & (first == 0) & (second == 0)
    last = (first == 0) & (second == 0) & (third == 0)
    return most, first, second, third, last


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
    """The gradient before a ReLU, a pool, or a pool behind a ReLU: it goes to the first of the largest.

    y: what the ReLU gave, or what the pool got. A row has `pixels` of dz; with SUMS, each tile's Σdy: the gradient for
    a bias.
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
        most, first, second, third, last = largest(one, two, three, four)
        if RELU:
            g = tl.where(most > 0, g, 0.0)
        taken = g.to(dy.dtype.element_ty)
        none = tl.zeros_like(taken)
        tl.store(dy + corner, tl.where(first, taken, none), mask=real)
        tl.store(dy + corner + C, tl.where(second, taken, none), mask=real)
        tl.store(dy + corner + below, tl.where(third, taken, none), mask=real)
        tl.store(dy + corner + below + C, tl.where(last, taken, none), mask=real)
    else:
        here = (row * pixels + p)[:, None] * C + n[None, :]
        g = tl.where(tl.load(y + here, mask=real, other=0.0) > 0, g, 0.0)
        taken = g.to(dy.dtype.element_ty)
        tl.store(dy + here, taken, mask=real)
    if SUMS:
        at = (row * tl.num_programs(0) + tile) * C + n
        tl.store(partials + at, tl.sum(taken.to(tl.float32), 0))


@triton.jit
def normalize_pool(y, scale, shift, z, pixels, ho, wo, C: tl.constexpr, BLOCK: tl.constexpr):
    """z: of every 2×2 pixels of relu(scale·y + shift) the largest; a row has `pixels` of z."""
    tile, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    p, n = tile * BLOCK + tl.arange(0, BLOCK), tl.arange(0, C)
    real = (p < pixels)[:, None]
    s, t = tl.load(scale + row * C + n)[None, :], tl.load(shift + row * C + n)[None, :]
    corner = (row * pixels * 4 + (p // wo) * 2 * (2 * wo) + (p % wo) * 2)[:, None] * C + n[None, :]
    below = 2 * wo * C
    one = tl.load(y + corner, mask=real, other=0.0).to(tl.float32) * s + t
    two = tl.load(y + corner + C, mask=real, other=0.0).to(tl.float32) * s + t
    three = tl.load(y + corner + below, mask=real, other=0.0).to(tl.float32) * s + t
    four = tl.load(y + corner + below + C, mask=real, other=0.0).to(tl.float32) * s + t
    most = tl.maximum(tl.maximum(tl.maximum(one, two), tl.maximum(three, four)), 0.0)
    tl.store(z + (row * pixels + p)[:, None] * C + n[None, :], most.to(z.dtype.element_ty), mask=real)


@triton.jit
def sums_through_pool(
    dz,
    y,
    scale,
    shift,
    mean,
    inverse,
    partials,
    pixels,
    ho,
    wo,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    """Each program's Σg and Σg·x̂, with g the gradient before the ReLU: dz at the first of the largest if above 0."""
    tile, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    n = tl.arange(0, C)
    s, t = tl.load(scale + row * C + n)[None, :], tl.load(shift + row * C + n)[None, :]
    u, v = tl.load(mean + row * C + n)[None, :], tl.load(inverse + row * C + n)[None, :]
    sums, products = tl.zeros((BLOCK, C), tl.float32), tl.zeros((BLOCK, C), tl.float32)
    for k in tl.range(0, ROUNDS):
        p = (tile * ROUNDS + k) * BLOCK + tl.arange(0, BLOCK)
        real = (p < pixels)[:, None]
        corner = (row * pixels * 4 + (p // wo) * 2 * (2 * wo) + (p % wo) * 2)[:, None] * C + n[None, :]
        below = 2 * wo * C
        one = tl.load(y + corner, mask=real, other=0.0).to(tl.float32)
        two = tl.load(y + corner + C, mask=real, other=0.0).to(tl.float32)
        three = tl.load(y + corner + below, mask=real, other=0.0).to(tl.float32)
        four = tl.load(y + corner + below + C, mask=real, other=0.0).to(tl.float32)
        most, first, second, third, _ = largest(one * s + t, two * s + t, three * s + t, four * s + t)
        g = tl.load(dz + (row * pixels + p)[:, None] * C + n[None, :], mask=real, other=0.0).to(tl.float32)
        g = tl.where(most > 0, g, 0.0)
        chosen = tl.where(first, one, tl.where(second, two, tl.where(third, three, four)))
        sums += g
        products += g * (chosen - u) * v
    at = (row * tl.num_programs(0) + tile) * 2 * C + n
    tl.store(partials + at, tl.sum(sums, 0))
    tl.store(partials + at + C, tl.sum(products, 0))


@triton.jit
def normalize_backward_through_pool(
    dz, y, scale, shift, mean, inverse, sums, dy, pixels, ho, wo, C: tl.constexpr, BLOCK: tl.constexpr
):
    """dy = scale·(g − mean g − x̂·mean(g·x̂)), with g as above: 0 at three of four pixels."""
    tile, row, rows = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.num_programs(1)
    p, n = tile * BLOCK + tl.arange(0, BLOCK), tl.arange(0, C)
    real = (p < pixels)[:, None]
    s, t = tl.load(scale + row * C + n)[None, :], tl.load(shift + row * C + n)[None, :]
    corner = (row * pixels * 4 + (p // wo) * 2 * (2 * wo) + (p % wo) * 2)[:, None] * C + n[None, :]
    below = 2 * wo * C
    one = tl.load(y + corner, mask=real, other=0.0).to(tl.float32)
    two = tl.load(y + corner + C, mask=real, other=0.0).to(tl.float32)
    three = tl.load(y + corner + below, mask=real, other=0.0).to(tl.float32)
    four = tl.load(y + corner + below + C, mask=real, other=0.0).to(tl.float32)
    most, first, second, third, last = largest(one * s + t, two * s + t, three * s + t, four * s + t)
    g = tl.load(dz + (row * pixels + p)[:, None] * C + n[None, :], mask=real, other=0.0).to(tl.float32)
    g = tl.where(most > 0, g, 0.0)
    u, v = tl.load(mean + row * C + n)[None, :], tl.load(inverse + row * C + n)[None, :]
    M = pixels * 4
    a, b = tl.load(sums + row * C + n)[None, :] / M, tl.load(sums + (rows + row) * C + n)[None, :] / M
    kind = dy.dtype.element_ty
    tl.store(dy + corner, (s * (tl.where(first, g, 0.0) - a - (one - u) * v * b)).to(kind), mask=real)
    tl.store(dy + corner + C, (s * (tl.where(second, g, 0.0) - a - (two - u) * v * b)).to(kind), mask=real)
    tl.store(dy + corner + below, (s * (tl.where(third, g, 0.0) - a - (three - u) * v * b)).to(kind), mask=real)
    tl.store(dy + corner + below + C, (s * (tl.where(last, g, 0.0) - a - (four - u) * v * b)).to(kind), mask=real)
