"""Triton kernels: EvoNorm-S0 with v = 1, of many small models at once.

One program has one sample, as in `group_kernels`.
"""

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.
import triton
import triton.language as tl

from walktalk.learning.stacked.fused.group_kernels import over_groups
from walktalk.learning.stacked.fused.order_kernels import row_of


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
