"""Triton kernels: attention of short texts in which several heads ask the same keys and values, as Llamas have it.

One program has one head of keys and values of one text, all of them in hand, and goes through the heads that ask it,
BLOCK tokens at a time. TP and DP are the powers of two that the T tokens and the D numbers of a head fit into.
"""

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.
import triton
import triton.language as tl


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
