"""Triton kernels: batch norm, shortcut and ReLU of many small models at once; layouts as in `conv_kernels`."""

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.
import triton
import triton.language as tl

from walktalk.learning.stacked.fused.order_kernels import row_of


@triton.jit
def batch_statistics(
    partials,
    gamma,
    beta,
    scale,
    shift,
    mean,
    inverse,
    running_mean,
    running_var,
    running_row,
    tiles,
    M,
    eps,
    momentum,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    RUNNING: tl.constexpr,
):
    """From the tiles' sums: mean, 1/σ, the affine map of the normalization; running statistics brought up to date."""
    row = tl.program_id(0).to(tl.int64)
    n, j = tl.arange(0, C), tl.arange(0, BLOCK)
    total, squares = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    for start in tl.range(0, tiles, BLOCK):
        at = (row * tiles + start + j)[:, None] * (2 * C) + n[None, :]
        there = (start + j < tiles)[:, None]
        total += tl.sum(tl.load(partials + at, mask=there, other=0.0), 0)
        squares += tl.sum(tl.load(partials + at + C, mask=there, other=0.0), 0)
    u = total / M
    var = tl.maximum(squares / M - u * u, 0.0)
    v = 1.0 / tl.sqrt(var + eps)
    s = tl.load(gamma + row * C + n) * v
    tl.store(scale + row * C + n, s)
    tl.store(shift + row * C + n, tl.load(beta + row * C + n) - u * s)
    tl.store(mean + row * C + n, u)
    tl.store(inverse + row * C + n, v)
    if RUNNING:
        old = tl.load(running_mean + row * running_row + n)
        tl.store(running_mean + row * running_row + n, old + momentum * (u - old))
        old = tl.load(running_var + row * running_row + n)
        tl.store(running_var + row * running_row + n, old + momentum * (var * M / (M - 1) - old))


@triton.jit
def batch_sums(partials, sums, tiles, C: tl.constexpr, BLOCK: tl.constexpr):
    """[W, tiles, 2, C] to [2, W, C]: the gradients for β and γ."""
    row, rows = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    n, j = tl.arange(0, C), tl.arange(0, BLOCK)
    first, second = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    for start in tl.range(0, tiles, BLOCK):
        at = (row * tiles + start + j)[:, None] * (2 * C) + n[None, :]
        there = (start + j < tiles)[:, None]
        first += tl.sum(tl.load(partials + at, mask=there, other=0.0), 0)
        second += tl.sum(tl.load(partials + at + C, mask=there, other=0.0), 0)
    tl.store(sums + row * C + n, first)
    tl.store(sums + (rows + row) * C + n, second)


@triton.jit(do_not_specialize=["back"])
def normalize(
    y,
    scale,
    shift,
    around,
    z,
    B,
    back,
    HO: tl.constexpr,
    WO: tl.constexpr,
    H: tl.constexpr,
    WD: tl.constexpr,
    C: tl.constexpr,
    SHORTCUT: tl.constexpr,
    AC: tl.constexpr,
    BEFORE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """z = relu(scale·y + shift), plus a shortcut: "same" shape, or "padded": every second pixel, new channels zero."""
    tile, row = tl.program_id(0), row_of(back)
    M = B * HO * WO
    m, n = tile * BLOCK + tl.arange(0, BLOCK), tl.arange(0, C)
    valid = (m < M)[:, None]
    here = row * M * C + m[:, None] * C + n[None, :]
    out = tl.load(y + here, mask=valid, other=0.0).to(tl.float32)
    out = out * tl.load(scale + row * C + n)[None, :] + tl.load(shift + row * C + n)[None, :]
    if SHORTCUT == "same":
        out += tl.load(around + here, mask=valid, other=0.0).to(tl.float32)
    if SHORTCUT == "padded":
        b, oy, ox = m // (HO * WO), (m // WO) % HO, m % WO
        pixel = (b * H + oy * 2) * WD + ox * 2
        old = n - BEFORE
        taken = valid & ((old >= 0) & (old < AC))[None, :]
        at = row * (B * H * WD * AC) + pixel[:, None] * AC + old[None, :]
        out += tl.load(around + at, mask=taken, other=0.0).to(tl.float32)
    tl.store(z + here, tl.maximum(out, 0.0).to(z.dtype.element_ty), mask=valid)


@triton.jit(do_not_specialize=["back"])
def gradient_sums(
    dz, z, y, mean, inverse, partials, M, back, C: tl.constexpr, BLOCK: tl.constexpr, ROUNDS: tl.constexpr
):
    """Each program's Σg and Σg·x̂ with g = dz·(z > 0), over ROUNDS tiles."""
    tile, row = tl.program_id(0), row_of(back)
    n = tl.arange(0, C)
    u, v = tl.load(mean + row * C + n)[None, :], tl.load(inverse + row * C + n)[None, :]
    first, second = tl.zeros((BLOCK, C), tl.float32), tl.zeros((BLOCK, C), tl.float32)
    for k in tl.range(0, ROUNDS):
        m = (tile * ROUNDS + k) * BLOCK + tl.arange(0, BLOCK)
        valid = (m < M)[:, None]
        here = row * M * C + m[:, None] * C + n[None, :]
        g = tl.load(dz + here, mask=valid, other=0.0).to(tl.float32)
        g = tl.where(tl.load(z + here, mask=valid, other=0.0) > 0, g, 0.0)
        first += g
        second += g * ((tl.load(y + here, mask=valid, other=0.0).to(tl.float32) - u) * v)
    at = (row * tl.num_programs(0) + tile) * 2 * C + n
    tl.store(partials + at, tl.sum(first, 0))
    tl.store(partials + at + C, tl.sum(second, 0))


@triton.jit(do_not_specialize=["back"])
def normalize_backward(
    g, z, y, scale, mean, inverse, sums, dy, M, back, C: tl.constexpr, BLOCK: tl.constexpr, MASK: tl.constexpr
):
    """dy = scale·(g − mean g − x̂·mean(g·x̂)); with MASK, g is dz and still to be cut off where z is zero."""
    tile, row, rows = tl.program_id(0), row_of(back), tl.num_programs(1)
    m, n = tile * BLOCK + tl.arange(0, BLOCK), tl.arange(0, C)
    valid = (m < M)[:, None]
    here = row * M * C + m[:, None] * C + n[None, :]
    grad = tl.load(g + here, mask=valid, other=0.0).to(tl.float32)
    if MASK:
        grad = tl.where(tl.load(z + here, mask=valid, other=0.0) > 0, grad, 0.0)
    u, v = tl.load(mean + row * C + n), tl.load(inverse + row * C + n)
    first, second = tl.load(sums + row * C + n) / M, tl.load(sums + (rows + row) * C + n) / M
    normal = (tl.load(y + here, mask=valid, other=0.0).to(tl.float32) - u[None, :]) * v[None, :]
    out = tl.load(scale + row * C + n)[None, :] * (grad - first[None, :] - normal * second[None, :])
    tl.store(dy + here, out.to(dy.dtype.element_ty), mask=valid)
