"""Triton kernels: group norm, shortcut and ReLU of many small models at once; layouts as in `conv_kernels`.

One program has one sample of one row, so that nothing of a group is anywhere else. It reads a sample twice: for the
sums, and, from the cache by then, for the result.
"""

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.
import triton
import triton.language as tl

from walktalk.learning.stacked.fused.order_kernels import row_of


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
