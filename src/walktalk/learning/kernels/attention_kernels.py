"""Triton kernels: layer norm and attention of many small transformers at once.

Tokens are [W, N, C], every row dense by itself. Sizes that are no powers of two are filled up in registers only: CP is
the power of two that C fits into, and TP and DP the same for a text's tokens T and for the D numbers of one head.
"""

import triton
import triton.language as tl

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.


@triton.jit
def layer_norm(
    x,
    gamma,
    beta,
    z,
    mean,
    inverse,
    tokens,
    eps,
    C: tl.constexpr,
    CP: tl.constexpr,
    BLOCK: tl.constexpr,
    BIAS: tl.constexpr,
):
    """z = γ·x̂ + β, each token by its own mean and 1/σ, which are kept; a program has BLOCK tokens."""
    tile, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    m, n = tile * BLOCK + tl.arange(0, BLOCK), tl.arange(0, CP)
    real = (m < tokens)[:, None] & (n < C)[None, :]
    at = (row * tokens + m)[:, None] * C + n[None, :]
    a = tl.load(x + at, mask=real, other=0.0).to(tl.float32)
    u = tl.sum(a, 1) / C
    apart = tl.where(real, a - u[:, None], 0.0)
    v = 1.0 / tl.sqrt(tl.sum(apart * apart, 1) / C + eps)
    out = apart * v[:, None] * tl.load(gamma + row * C + n, mask=n < C, other=0.0)[None, :]
    if BIAS:
        out += tl.load(beta + row * C + n, mask=n < C, other=0.0)[None, :]
    tl.store(z + at, out.to(z.dtype.element_ty), mask=real)
    tl.store(mean + row * tokens + m, u, mask=m < tokens)
    tl.store(inverse + row * tokens + m, v, mask=m < tokens)


@triton.jit
def layer_norm_backward(
    dz,
    x,
    gamma,
    mean,
    inverse,
    dx,
    partials,
    tokens,
    C: tl.constexpr,
    CP: tl.constexpr,
    BLOCK: tl.constexpr,
    ROUNDS: tl.constexpr,
):
    """dx, and each program's Σdz and Σdz·x̂ over its ROUNDS × BLOCK tokens: the gradients for β and γ."""
    tile, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    n = tl.arange(0, CP)
    weight = tl.load(gamma + row * C + n, mask=n < C, other=0.0)[None, :]
    first, second = tl.zeros((BLOCK, CP), tl.float32), tl.zeros((BLOCK, CP), tl.float32)
    for k in tl.range(0, ROUNDS):
        m = (tile * ROUNDS + k) * BLOCK + tl.arange(0, BLOCK)
        there = m < tokens
        real = there[:, None] & (n < C)[None, :]
        at = (row * tokens + m)[:, None] * C + n[None, :]
        g = tl.load(dz + at, mask=real, other=0.0).to(tl.float32)
        u = tl.load(mean + row * tokens + m, mask=there, other=0.0)[:, None]
        v = tl.load(inverse + row * tokens + m, mask=there, other=0.0)[:, None]
        normal = tl.where(real, (tl.load(x + at, mask=real, other=0.0).to(tl.float32) - u) * v, 0.0)
        first += g
        second += g * normal
        weighted = g * weight
        one = tl.sum(weighted, 1)[:, None] / C
        two = tl.sum(weighted * normal, 1)[:, None] / C
        tl.store(dx + at, (v * (weighted - one - normal * two)).to(dx.dtype.element_ty), mask=real)
    at = (row * tl.num_programs(0) + tile) * 2 * CP + n
    tl.store(partials + at, tl.sum(first, 0))
    tl.store(partials + at + CP, tl.sum(second, 0))


@triton.jit
def shares(a, b, t, T, scale, CAUSAL: tl.constexpr, PRECISION: tl.constexpr):
    """How much each token t looks at each other: the softmax of scale · a bᵀ, [TP, TP]."""
    scores = tl.dot(a, tl.trans(b), input_precision=PRECISION) * scale
    seen = (t < T)[None, :]
    if CAUSAL:
        seen = seen & (t[None, :] <= t[:, None])
    scores = tl.where(seen, scores, float("-inf"))
    power = tl.exp(scores - tl.max(scores, 1)[:, None])
    return power / tl.sum(power, 1)[:, None]


@triton.jit
def attention(
    q,
    k,
    v,
    out,
    s_n,
    s_h,
    s_t,
    H,
    T,
    scale,
    D: tl.constexpr,
    TP: tl.constexpr,
    DP: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One head of one text a program, all its tokens in hand. q, k, v: a number of text n, head h and token t lies at
    s_n n + s_h h + s_t t; out: [texts, T, H, D], in the type of the products."""
    n, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    t, d = tl.arange(0, TP), tl.arange(0, DP)
    real = (t < T)[:, None] & (d < D)[None, :]
    at = n * s_n + h * s_h + t[:, None] * s_t + d[None, :]
    kind = out.dtype.element_ty
    a = tl.load(q + at, mask=real, other=0.0).to(kind)
    b = tl.load(k + at, mask=real, other=0.0).to(kind)
    c = tl.load(v + at, mask=real, other=0.0).to(kind)
    mixed = tl.dot(shares(a, b, t, T, scale, CAUSAL, PRECISION).to(kind), c, input_precision=PRECISION)
    tl.store(out + ((n * T + t) * H + h)[:, None] * D + d[None, :], mixed.to(kind), mask=real)


@triton.jit
def attention_backward(
    q,
    k,
    v,
    gradient,
    dq,
    dk,
    dv,
    s_n,
    s_h,
    s_t,
    o_n,
    o_h,
    o_t,
    g_n,
    g_h,
    g_t,
    H,
    T,
    scale,
    D: tl.constexpr,
    TP: tl.constexpr,
    DP: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradients for q, k and v, which lie at the distances g; the one for the result lies at the distances o."""
    n, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    t, d = tl.arange(0, TP), tl.arange(0, DP)
    real = (t < T)[:, None] & (d < D)[None, :]
    at = n * s_n + h * s_h + t[:, None] * s_t + d[None, :]
    kind = dq.dtype.element_ty
    a = tl.load(q + at, mask=real, other=0.0).to(kind)
    b = tl.load(k + at, mask=real, other=0.0).to(kind)
    c = tl.load(v + at, mask=real, other=0.0).to(kind)
    g = tl.load(gradient + n * o_n + h * o_h + t[:, None] * o_t + d[None, :], mask=real, other=0.0).to(kind)
    p = shares(a, b, t, T, scale, CAUSAL, PRECISION)
    for_v = tl.dot(tl.trans(p.to(kind)), g, input_precision=PRECISION)
    for_p = tl.dot(g, tl.trans(c), input_precision=PRECISION)
    for_scores = (p * (for_p - tl.sum(p * for_p, 1)[:, None]) * scale).to(kind)
    for_q = tl.dot(for_scores, b, input_precision=PRECISION)
    for_k = tl.dot(tl.trans(for_scores), a, input_precision=PRECISION)
    to = n * g_n + h * g_h + t[:, None] * g_t + d[None, :]
    tl.store(dq + to, for_q.to(kind), mask=real)
    tl.store(dk + to, for_k.to(kind), mask=real)
    tl.store(dv + to, for_v.to(kind), mask=real)


# Triton kernels: attention of short texts in which several heads ask the same keys and values, as Llamas have it.
#
# One program has one head of keys and values of one text, all of them in hand, and goes through the heads that ask it,
# BLOCK tokens at a time. TP and DP are the powers of two that the T tokens and the D numbers of a head fit into.

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.


@triton.jit
def looks(a, b, m, t, T, scale, CAUSAL: tl.constexpr):
    """How much each token m looks at each token t: the softmax of scale · a bᵀ, [BLOCK, TP]."""
    scores = tl.dot(a, tl.trans(b)) * (scale * 1.4426950408889634)  # powers of two are what a GPU has
    seen = (t < T)[None, :]
    if CAUSAL:
        seen = seen & (t[None, :] <= m[:, None])
    scores = tl.where(seen, scores, float("-inf"))
    power = tl.exp2(scores - tl.max(scores, 1)[:, None])
    return power * (1.0 / tl.sum(power, 1))[:, None]


@triton.jit
def attend(
    q,
    k,
    v,
    out,
    q_n,
    q_h,
    q_t,
    k_n,
    k_h,
    k_t,
    v_n,
    v_h,
    v_t,
    H,
    T,
    scale,
    ASKING: tl.constexpr,
    BLOCKS: tl.constexpr,
    D: tl.constexpr,
    TP: tl.constexpr,
    DP: tl.constexpr,
    BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """q: a number of text n, head h and token t lies at q_n n + q_h h + q_t t, and so on; out: [texts, T, heads, D].
    H: heads of keys and values, each asked by ASKING heads."""
    n, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    t, d = tl.arange(0, TP), tl.arange(0, DP)
    real = (t < T)[:, None] & (d < D)[None, :]
    b = tl.load(k + n * k_n + h * k_h + t[:, None] * k_t + d[None, :], mask=real, other=0.0)
    c = tl.load(v + n * v_n + h * v_h + t[:, None] * v_t + d[None, :], mask=real, other=0.0)
    for i in tl.range(0, ASKING * BLOCKS):
        asking, m = h * ASKING + i // BLOCKS, (i % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
        there = (m < T)[:, None] & (d < D)[None, :]
        a = tl.load(q + n * q_n + asking * q_h + m[:, None] * q_t + d[None, :], mask=there, other=0.0)
        mixed = tl.dot(looks(a, b, m, t, T, scale, CAUSAL).to(a.dtype), c)
        at = ((n * T + m) * (H * ASKING) + asking)[:, None] * D + d[None, :]
        tl.store(out + at, mixed.to(out.dtype.element_ty), mask=there)


@triton.jit
def attend_backward(
    q,
    k,
    v,
    gradient,
    dq,
    dk,
    dv,
    q_n,
    q_h,
    q_t,
    k_n,
    k_h,
    k_t,
    v_n,
    v_h,
    v_t,
    H,
    T,
    scale,
    ASKING: tl.constexpr,
    BLOCKS: tl.constexpr,
    D: tl.constexpr,
    TP: tl.constexpr,
    DP: tl.constexpr,
    BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """The gradients for q, k and v; they and the one for the result are [texts, T, heads, D]."""
    n, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    t, d = tl.arange(0, TP), tl.arange(0, DP)
    real = (t < T)[:, None] & (d < D)[None, :]
    b = tl.load(k + n * k_n + h * k_h + t[:, None] * k_t + d[None, :], mask=real, other=0.0)
    c = tl.load(v + n * v_n + h * v_h + t[:, None] * v_t + d[None, :], mask=real, other=0.0)
    for_k, for_v = tl.zeros((TP, DP), tl.float32), tl.zeros((TP, DP), tl.float32)
    for i in tl.range(0, ASKING * BLOCKS):
        asking, m = h * ASKING + i // BLOCKS, (i % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
        there = (m < T)[:, None] & (d < D)[None, :]
        a = tl.load(q + n * q_n + asking * q_h + m[:, None] * q_t + d[None, :], mask=there, other=0.0)
        at = ((n * T + m) * (H * ASKING) + asking)[:, None] * D + d[None, :]
        g = tl.load(gradient + at, mask=there, other=0.0)
        p = looks(a, b, m, t, T, scale, CAUSAL)
        for_p = tl.dot(g, tl.trans(c))
        for_scores = (p * ((for_p - tl.sum(p * for_p, 1)[:, None]) * scale)).to(a.dtype)
        for_v += tl.dot(tl.trans(p.to(a.dtype)), g)
        for_k += tl.dot(tl.trans(for_scores), a)
        tl.store(dq + at, tl.dot(for_scores, b).to(dq.dtype.element_ty), mask=there)
    to = ((n * T + t) * H + h)[:, None] * D + d[None, :]
    tl.store(dk + to, for_k.to(dk.dtype.element_ty), mask=real)
    tl.store(dv + to, for_v.to(dv.dtype.element_ty), mask=real)
