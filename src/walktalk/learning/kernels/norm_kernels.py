"""Triton kernels: batch norm, shortcut and ReLU of many small models at once; layouts as in `conv_kernels`."""

import triton
import triton.language as tl

# Which row a program of a kernel has.

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.


@triton.jit
def row_of(back):
    """The rows from the first to the last, or, if `back` is 1, from the last to the first.

    What a kernel has just written of the last rows is still in the cache when the next one begins there.
    """
    place = tl.program_id(1)
    return tl.where(back == 1, tl.num_programs(1) - 1 - place, place).to(tl.int64)


# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.


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
    """Tiles' sums become mean, 1/σ and the affine map of the normalization; updates running statistics."""
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


# Triton kernels: group norm, shortcut and ReLU of many small models at once; layouts as in `conv_kernels`.
#
# One program has one sample of one row, so that nothing of a group is anywhere else. It reads a sample twice: for the
# sums, and, from the cache by then, for the result.

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.


@triton.jit
def over_groups(sums, C: tl.constexpr, G: tl.constexpr):
    """Numbers of channels [C], added up over each group, and given back to each of its channels."""
    total = tl.sum(tl.reshape(sums, (G, C // G)), 1)
    return tl.reshape(tl.broadcast_to(total[:, None], (G, C // G)), (C,))


@triton.jit(do_not_specialize=["back"])
def group_normalize(
    y,
    gamma,
    beta,
    around,
    z,
    mean,
    inverse,
    B,
    eps,
    back,
    HO: tl.constexpr,
    WO: tl.constexpr,
    H: tl.constexpr,
    WD: tl.constexpr,
    C: tl.constexpr,
    G: tl.constexpr,
    SHORTCUT: tl.constexpr,
    AC: tl.constexpr,
    BEFORE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """z = relu(norm(y)), plus a shortcut as in `norm_kernels.normalize`; mean and 1/σ of every sample's channels."""
    b, row = tl.program_id(0), row_of(back)
    P: tl.constexpr = HO * WO
    n = tl.arange(0, C)
    sample = row * B + b
    total, squares = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    for start in tl.range(0, P, BLOCK):
        m = start + tl.arange(0, BLOCK)
        part = tl.load(y + (sample * P + m)[:, None] * C + n[None, :], mask=(m < P)[:, None], other=0.0).to(tl.float32)
        total += tl.sum(part, 0)
        squares += tl.sum(part * part, 0)
    count = P * (C // G)
    u = over_groups(total, C, G) / count
    v = 1.0 / tl.sqrt(tl.maximum(over_groups(squares, C, G) / count - u * u, 0.0) + eps)
    tl.store(mean + sample * C + n, u)
    tl.store(inverse + sample * C + n, v)
    scale = tl.load(gamma + row * C + n) * v
    shift = tl.load(beta + row * C + n) - u * scale
    for start in tl.range(0, P, BLOCK):
        m = start + tl.arange(0, BLOCK)
        valid = (m < P)[:, None]
        here = (sample * P + m)[:, None] * C + n[None, :]
        out = tl.load(y + here, mask=valid, other=0.0).to(tl.float32) * scale[None, :] + shift[None, :]
        if SHORTCUT == "same":
            out += tl.load(around + here, mask=valid, other=0.0).to(tl.float32)
        if SHORTCUT == "padded":
            pixel = sample * (H * WD) + (m // WO) * 2 * WD + (m % WO) * 2
            old = n - BEFORE
            taken = valid & ((old >= 0) & (old < AC))[None, :]
            out += tl.load(around + pixel[:, None] * AC + old[None, :], mask=taken, other=0.0).to(tl.float32)
        tl.store(z + here, tl.maximum(out, 0.0).to(z.dtype.element_ty), mask=valid)


@triton.jit(do_not_specialize=["back"])
def group_backward(
    dz, z, y, gamma, mean, inverse, dy, partials, B, P, back, C: tl.constexpr, G: tl.constexpr, BLOCK: tl.constexpr
):
    """dy from dz, cut off where z is zero; every sample's Σg and Σg·x̂, which are the gradients for β and γ."""
    b, row = tl.program_id(0), row_of(back)
    n = tl.arange(0, C)
    sample = row * B + b
    u, v = tl.load(mean + sample * C + n), tl.load(inverse + sample * C + n)
    weight = tl.load(gamma + row * C + n)
    first, second = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    for start in tl.range(0, P, BLOCK):
        m = start + tl.arange(0, BLOCK)
        valid = (m < P)[:, None]
        here = (sample * P + m)[:, None] * C + n[None, :]
        g = tl.load(dz + here, mask=valid, other=0.0).to(tl.float32)
        g = tl.where(tl.load(z + here, mask=valid, other=0.0) > 0, g, 0.0)
        normal = (tl.load(y + here, mask=valid, other=0.0).to(tl.float32) - u[None, :]) * v[None, :]
        first += tl.sum(g, 0)
        second += tl.sum(g * normal, 0)
    tl.store(partials + sample * 2 * C + n, first)
    tl.store(partials + sample * 2 * C + C + n, second)
    count = P * (C // G)
    first, second = over_groups(first * weight, C, G) / count, over_groups(second * weight, C, G) / count
    for start in tl.range(0, P, BLOCK):
        m = start + tl.arange(0, BLOCK)
        valid = (m < P)[:, None]
        here = (sample * P + m)[:, None] * C + n[None, :]
        g = tl.load(dz + here, mask=valid, other=0.0).to(tl.float32)
        g = tl.where(tl.load(z + here, mask=valid, other=0.0) > 0, g, 0.0)
        normal = (tl.load(y + here, mask=valid, other=0.0).to(tl.float32) - u[None, :]) * v[None, :]
        out = v[None, :] * (g * weight[None, :] - first[None, :] - normal * second[None, :])
        tl.store(dy + here, out.to(dy.dtype.element_ty), mask=valid)


# Triton kernels: EvoNorm-S0 with v = 1, of many small models at once.
#
# One program has one sample, as in those of group norm.

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.


@triton.jit(do_not_specialize=["back"])
def evo_normalize(
    y, gamma, beta, z, mean, inverse, B, P, eps, back, C: tl.constexpr, G: tl.constexpr, BLOCK: tl.constexpr
):
    """z = γ · y · σ(y) / √(variance of the group + ε) + β; mean and 1/√ of every sample's channels are kept."""
    b, row = tl.program_id(0), row_of(back)
    n = tl.arange(0, C)
    sample = row * B + b
    total, squares = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    for start in tl.range(0, P, BLOCK):
        m = start + tl.arange(0, BLOCK)
        part = tl.load(y + (sample * P + m)[:, None] * C + n[None, :], mask=(m < P)[:, None], other=0.0).to(tl.float32)
        total += tl.sum(part, 0)
        squares += tl.sum(part * part, 0)
    count = P * (C // G)
    u = over_groups(total, C, G) / count
    v = 1.0 / tl.sqrt(tl.maximum(over_groups(squares, C, G) / count - u * u, 0.0) + eps)
    tl.store(mean + sample * C + n, u)
    tl.store(inverse + sample * C + n, v)
    scale, shift = tl.load(gamma + row * C + n) * v, tl.load(beta + row * C + n)
    for start in tl.range(0, P, BLOCK):
        m = start + tl.arange(0, BLOCK)
        valid = (m < P)[:, None]
        here = (sample * P + m)[:, None] * C + n[None, :]
        a = tl.load(y + here, mask=valid, other=0.0).to(tl.float32)
        out = a * tl.sigmoid(a) * scale[None, :] + shift[None, :]
        tl.store(z + here, out.to(z.dtype.element_ty), mask=valid)


@triton.jit(do_not_specialize=["back"])
def evo_backward(
    dz, y, gamma, mean, inverse, dy, partials, B, P, back, C: tl.constexpr, G: tl.constexpr, BLOCK: tl.constexpr
):
    """dy from dz; every sample's gradients for β and γ."""
    b, row = tl.program_id(0), row_of(back)
    n = tl.arange(0, C)
    sample = row * B + b
    u, v = tl.load(mean + sample * C + n), tl.load(inverse + sample * C + n)
    weight = tl.load(gamma + row * C + n)
    first, second = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    for start in tl.range(0, P, BLOCK):
        m = start + tl.arange(0, BLOCK)
        valid = (m < P)[:, None]
        here = (sample * P + m)[:, None] * C + n[None, :]
        g = tl.load(dz + here, mask=valid, other=0.0).to(tl.float32)
        a = tl.load(y + here, mask=valid, other=0.0).to(tl.float32)
        first += tl.sum(g, 0)
        second += tl.sum(g * a * tl.sigmoid(a), 0)
    tl.store(partials + sample * 2 * C + n, first)
    tl.store(partials + sample * 2 * C + C + n, second * v)
    spread = -over_groups(second * weight, C, G) * v * v * v / (P * (C // G))  # by way of the variance
    for start in tl.range(0, P, BLOCK):
        m = start + tl.arange(0, BLOCK)
        valid = (m < P)[:, None]
        here = (sample * P + m)[:, None] * C + n[None, :]
        g = tl.load(dz + here, mask=valid, other=0.0).to(tl.float32)
        a = tl.load(y + here, mask=valid, other=0.0).to(tl.float32)
        s = tl.sigmoid(a)
        out = (weight * v)[None, :] * g * s * (1.0 + a * (1.0 - s)) + spread[None, :] * (a - u[None, :])
        tl.store(dy + here, out.to(dy.dtype.element_ty), mask=valid)
