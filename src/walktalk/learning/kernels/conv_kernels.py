"""Triton kernels: convolutions of many small models at once.

Activations are [W, B, H, W', C]: row, sample, pixel, channel; every row is dense by itself, so a tile of pixels never
crosses from one model into the next. Weights are [W, KS², C, C'] (`taps`), in the activations' type; kernels are
KS × KS, 3 or 5. A convolution is an implicit matrix product: pixels × (taps × channels) times (taps × channels) × new
channels, with the sums that a batch norm needs, forwards and backwards, fused behind it. (Normalization and ReLU in
front of it was slower: every pixel is read nine times.) Sums over pixels go through one partial sum a tile, added up in
a fixed order by a kernel of their own: no atomics, so the same inputs give the same bytes.

`KX` is how many taps of a kernel row are one product: 1, or more (4: three and an empty one; 2 of five: in pieces),
which makes contiguous loads as many times as long where channels are few. Distances between rows (`x_row`) are in
pixels, and sizes of images are constants: divisions become shifts, and a load is only as wide as the compiler can see
its address to be aligned.
"""

import triton
import triton.language as tl

from walktalk.learning.kernels.norm_kernels import row_of

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.


@triton.jit
def in_piece(kx0, KS: tl.constexpr, KX: tl.constexpr):
    """How many of KX taps there are from tap kx0 of a kernel row on; a constant where all pieces have as many."""
    if KX >= KS:
        return KS
    elif KS % KX == 0:
        return KX
    else:
        return tl.minimum(KS - kx0, KX)


@triton.jit
def neighbours(
    x,
    m,
    M,
    ky,
    kx0,
    limit,
    k,
    H: tl.constexpr,
    WD: tl.constexpr,
    HO: tl.constexpr,
    WO: tl.constexpr,
    CIN: tl.constexpr,
    STRIDE: tl.constexpr,
    KS: tl.constexpr,
):
    """What a tap of kernel row ky (or `limit` taps, k running over their channels) sees at the pixels m."""
    across = k // CIN
    b, oy, ox = m // (HO * WO), (m // WO) % HO, m % WO
    iy, left = oy * STRIDE + ky - KS // 2, ox * STRIDE + kx0 - KS // 2
    ix = left[:, None] + across[None, :]
    inside = (m < M)[:, None] & (iy >= 0)[:, None] & (iy < H)[:, None] & (ix >= 0) & (ix < WD)
    place = ((b * H + iy) * WD + left) * CIN
    return tl.load(x + place[:, None] + k[None, :], mask=inside & (across < limit)[None, :], other=0.0)


@triton.jit(do_not_specialize=["back"])
def conv_forward(
    x,
    taps,
    bias,
    y,
    partials,
    x_row,
    B,
    back,
    H: tl.constexpr,
    WD: tl.constexpr,
    HO: tl.constexpr,
    WO: tl.constexpr,
    CIN: tl.constexpr,
    COUT: tl.constexpr,
    STRIDE: tl.constexpr,
    KS: tl.constexpr,
    KX: tl.constexpr,
    BLOCK: tl.constexpr,
    BIAS: tl.constexpr,
    RELU: tl.constexpr,
    STATS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """y = conv(x) + bias, cut off below zero if RELU; with STATS, each tile's Σy and Σy²."""
    tile, row = tl.program_id(0), row_of(back)
    M = B * HO * WO
    m = tile * BLOCK + tl.arange(0, BLOCK)
    K: tl.constexpr = KX * CIN
    k, n = tl.arange(0, K), tl.arange(0, COUT)
    across = k // CIN
    x += row * x_row * CIN
    taps += row * (KS * KS * CIN * COUT)
    acc = tl.zeros((BLOCK, COUT), tl.float32)
    PIECES: tl.constexpr = (KS + KX - 1) // KX  # of a kernel row
    for j in tl.range(0, KS * PIECES):
        ky = j // PIECES
        kx0 = 0 if PIECES == 1 else (j % PIECES) * KX
        limit = in_piece(kx0, KS, KX)
        a = neighbours(x, m, M, ky, kx0, limit, k, H, WD, HO, WO, CIN, STRIDE, KS)
        at = (ky * KS + kx0) * CIN * COUT
        w = tl.load(taps + at + k[:, None] * COUT + n[None, :], mask=(across < limit)[:, None], other=0.0)
        acc = tl.dot(a, w, acc, input_precision=PRECISION)
    if BIAS:
        acc += tl.load(bias + row * COUT + n)[None, :]
    if RELU:
        acc = tl.maximum(acc, 0.0)
    result = acc.to(y.dtype.element_ty)
    real = (m < M)[:, None]
    tl.store(y + row * M * COUT + m[:, None] * COUT + n[None, :], result, mask=real)
    if STATS:
        kept = tl.where(real, result.to(tl.float32), 0.0)  # as the normalization will see it
        at = (row * tl.num_programs(0) + tile) * 2 * COUT + n
        tl.store(partials + at, tl.sum(kept, 0))
        tl.store(partials + at + COUT, tl.sum(kept * kept, 0))


@triton.jit(do_not_specialize=["back"])
def conv_backward(
    dy,
    taps,
    dx,
    partials,
    y1,
    scale,
    shift,
    mean,
    inverse,
    dz,
    z,
    B,
    back,
    H: tl.constexpr,
    WD: tl.constexpr,
    HO: tl.constexpr,
    WO: tl.constexpr,
    CIN: tl.constexpr,
    COUT: tl.constexpr,
    STRIDE: tl.constexpr,
    KS: tl.constexpr,
    KX: tl.constexpr,
    BLOCK: tl.constexpr,
    EPILOGUE: tl.constexpr,
    ZC: tl.constexpr,
    BEFORE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradient for a convolution's input [H, WD, COUT] from the one for its output [HO, WO, CIN].

    EPILOGUE "mask": the input was relu(scale·y1 + shift); store the gradient before that ReLU, and each tile's Σg and
    Σg·x̂. "add": add the gradient dz·(z > 0) that came around by the shortcut (ZC channels, BEFORE of them new).
    With stride 2, and a kernel of 3 × 3, the tiles of one program are pixels of one parity, which meet 1, 2, 2 or 4 of
    the nine taps.
    """
    tile, row = tl.program_id(0), row_of(back)
    K: tl.constexpr = KX * CIN
    k, n = tl.arange(0, K), tl.arange(0, COUT)
    across, c = k // CIN, k % CIN
    PIECES: tl.constexpr = (KS + KX - 1) // KX
    if STRIDE == 1:
        m = tile * BLOCK + tl.arange(0, BLOCK)
        M = B * H * WD
        b, iy, ix = m // (H * WD), (m // WD) % H, m % WD
        py, px = 0, 0
        steps = KS * PIECES
    else:
        tiles = tl.cdiv(B * HO * WO, BLOCK)
        py, px = (tile // tiles) // 2, (tile // tiles) % 2
        m = (tile % tiles) * BLOCK + tl.arange(0, BLOCK)
        M = B * HO * WO
        b, iy, ix = m // (HO * WO), ((m // WO) % HO) * 2 + py, (m % WO) * 2 + px
        steps = (1 + py) * (1 + px)
    dy += row * (B * HO * WO * CIN)
    taps += row * (KS * KS * CIN * COUT)
    acc = tl.zeros((BLOCK, COUT), tl.float32)
    for j in tl.range(0, steps):
        if STRIDE == 1:
            ky = j // PIECES
            kx0 = 0 if PIECES == 1 else (j % PIECES) * KX
            limit = in_piece(kx0, KS, KX)
            oy, left = iy + ky - KS // 2, ix + kx0 - KS // 2  # with the kernel turned around: the last tap first
            tap = KS * KS - 1 - (ky * KS + kx0 + across)
        else:
            ky = 1 - py + 2 * (j // (1 + px))
            kx0 = 1 - px + 2 * (j % (1 + px))
            limit = 1
            oy, left = (iy + 1 - ky) // 2, (ix + 1 - kx0) // 2
            tap = ky * 3 + kx0 + across
        ox = left[:, None] + across[None, :]
        inside = (m < M)[:, None] & (oy >= 0)[:, None] & (oy < HO)[:, None] & (ox >= 0) & (ox < WO)
        inside = inside & (across < limit)[None, :]
        place = ((b * HO + oy) * WO + left) * CIN
        a = tl.load(dy + place[:, None] + k[None, :], mask=inside, other=0.0)
        w = tl.load(
            taps + (tap * COUT * CIN + c)[:, None] + n[None, :] * CIN, mask=(across < limit)[:, None], other=0.0
        )
        acc = tl.dot(a, w, acc, input_precision=PRECISION)
    valid = (m < M)[:, None]
    pixel = (b * H + iy) * WD + ix
    here = row * (B * H * WD * COUT) + pixel[:, None] * COUT + n[None, :]
    if EPILOGUE == "mask":
        before = tl.load(y1 + here, mask=valid, other=0.0).to(tl.float32)
        s, t = tl.load(scale + row * COUT + n)[None, :], tl.load(shift + row * COUT + n)[None, :]
        u, v = tl.load(mean + row * COUT + n)[None, :], tl.load(inverse + row * COUT + n)[None, :]
        acc = tl.where(valid & (before * s + t > 0), acc, 0.0)
        result = acc.to(dx.dtype.element_ty)
        kept = result.to(tl.float32)
        at = (row * tl.num_programs(0) + tile) * 2 * COUT + n
        tl.store(partials + at, tl.sum(kept, 0))
        tl.store(partials + at + COUT, tl.sum(kept * (before - u) * v, 0))
    else:
        if EPILOGUE == "add":
            if STRIDE == 1:
                around, taken = here, valid
            else:
                small = (b * HO + iy // 2) * WO + ix // 2
                around = row * (B * HO * WO * ZC) + small[:, None] * ZC + BEFORE + n[None, :]
                taken = valid & (py + px == 0)
            above = tl.load(z + around, mask=taken, other=0.0)
            acc += tl.where(above > 0, tl.load(dz + around, mask=taken, other=0.0).to(tl.float32), 0.0)
        result = acc.to(dx.dtype.element_ty)
    tl.store(dx + here, result, mask=valid)


@triton.jit(do_not_specialize=["back"])
def conv_weights(
    x,
    dy,
    out,
    x_row,
    B,
    SPLIT,
    CHUNK,
    back,
    H: tl.constexpr,
    WD: tl.constexpr,
    HO: tl.constexpr,
    WO: tl.constexpr,
    CIN: tl.constexpr,
    COUT: tl.constexpr,
    STRIDE: tl.constexpr,
    KS: tl.constexpr,
    KX: tl.constexpr,
    ALL: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradient for the taps, [W, SPLIT, KS², CIN, COUT]: every split sums over its own pixels.

    A program does KX taps of a kernel row, or, with ALL, three whole rows, and reads dy once for them.
    """
    program, row = tl.program_id(0), row_of(back)
    M = B * HO * WO
    K: tl.constexpr = KX * CIN
    k, n = tl.arange(0, K), tl.arange(0, COUT)
    x += row * x_row * CIN
    dy += row * (M * COUT)
    PIECES: tl.constexpr = (KS + KX - 1) // KX
    GROUPS: tl.constexpr = 1 if ALL else KS * PIECES
    group, split = program % GROUPS, program // GROUPS
    ky = group // PIECES
    kx0 = 0 if PIECES == 1 else (group % PIECES) * KX
    limit = in_piece(kx0, KS, KX)
    first = tl.zeros((K, COUT), tl.float32)
    if ALL:
        second, third = tl.zeros((K, COUT), tl.float32), tl.zeros((K, COUT), tl.float32)
    for start in tl.range(split * CHUNK, tl.minimum((split + 1) * CHUNK, M), BLOCK):
        m = start + tl.arange(0, BLOCK)
        d = tl.load(dy + m[:, None] * COUT + n[None, :], mask=(m < M)[:, None], other=0.0)
        a = neighbours(x, m, M, ky, kx0, limit, k, H, WD, HO, WO, CIN, STRIDE, KS)
        first = tl.dot(tl.trans(a), d, first, input_precision=PRECISION)
        if ALL:
            a = neighbours(x, m, M, 1, 0, limit, k, H, WD, HO, WO, CIN, STRIDE, KS)
            second = tl.dot(tl.trans(a), d, second, input_precision=PRECISION)
            a = neighbours(x, m, M, 2, 0, limit, k, H, WD, HO, WO, CIN, STRIDE, KS)
            third = tl.dot(tl.trans(a), d, third, input_precision=PRECISION)
    at = out + ((row * SPLIT + split) * KS * KS + ky * KS + kx0) * CIN * COUT + k[:, None] * COUT + n[None, :]
    real = (k // CIN < limit)[:, None]
    tl.store(at, first, mask=real)
    if ALL:
        tl.store(at + 3 * CIN * COUT, second, mask=real)
        tl.store(at + 6 * CIN * COUT, third, mask=real)


# Triton kernels: weights of convolutions as taps, and gradients for taps as gradients for weights.

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.


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
