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
