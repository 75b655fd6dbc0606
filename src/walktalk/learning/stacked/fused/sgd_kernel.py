"""Triton kernel: a step of SGD on many models at once."""

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.
import triton
import triton.language as tl


@triton.jit
def sgd(
    weights,
    gradients,
    velocity,
    lr,
    size,
    decay,
    momentum,
    HAS_MOMENTUM: tl.constexpr,
    NESTEROV: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A step of torch.optim.SGD with a learning rate of its own for every number, in one pass over memory."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = at < size
    w, g = tl.load(weights + at, mask=real), tl.load(gradients + at, mask=real)
    g += decay * w
    if HAS_MOMENTUM:
        v = momentum * tl.load(velocity + at, mask=real) + g
        tl.store(velocity + at, v, mask=real)
        g = g + momentum * v if NESTEROV else v
    tl.store(weights + at, w - tl.load(lr + at, mask=real) * g, mask=real)


@triton.jit
def sgd_by_row(
    weights,
    gradients,
    velocity,
    lr,
    size,
    decay,
    momentum,
    HAS_MOMENTUM: tl.constexpr,
    NESTEROV: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The same for one parameter of all models, [W, size], with a learning rate [W] of each."""
    row = tl.program_id(1).to(tl.int64)
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real, at = here < size, row * size + here
    w, g = tl.load(weights + at, mask=real), tl.load(gradients + at, mask=real)
    g += decay * w
    if HAS_MOMENTUM:
        v = momentum * tl.load(velocity + at, mask=real) + g
        tl.store(velocity + at, v, mask=real)
        g = g + momentum * v if NESTEROV else v
    tl.store(weights + at, w - tl.load(lr + row) * g, mask=real)


@triton.jit
def sgd_between(
    weights,
    gradients,
    lr,
    matrix,
    outs,
    width,
    states,
    states_in,
    states_out,
    state_width,
    start,
    size,
    decay,
    momentum,
    HAS_MOMENTUM: tl.constexpr,
    NESTEROV: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The same; what comes out is written to rows of a matrix, and velocities are read and written in rows of another.

    `start` is the column of both at which the parameter begins.
    """
    row = tl.program_id(1).to(tl.int64)
    here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real, at = here < size, row * size + here
    w, g = tl.load(weights + at, mask=real), tl.load(gradients + at, mask=real)
    g += decay * w
    if HAS_MOMENTUM:
        v = momentum * tl.load(states + tl.load(states_in + row) * state_width + start + here, mask=real) + g
        tl.store(states + tl.load(states_out + row) * state_width + start + here, v, mask=real)
        g = g + momentum * v if NESTEROV else v
    tl.store(matrix + tl.load(outs + row) * width + start + here, w - tl.load(lr + row) * g, mask=real)
