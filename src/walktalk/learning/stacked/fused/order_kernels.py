"""Which row a program of a kernel has."""

# Triton reads the annotations of kernels, so there are no postponed ones here. Sizes that are compiled in are capitals.
import triton
import triton.language as tl


@triton.jit
def row_of(back):
    """The rows from the first to the last, or, if `back` is 1, from the last to the first.

    What a kernel has just written of the last rows is still in the cache when the next one begins there.
    """
    place = tl.program_id(1)
    return tl.where(back == 1, tl.num_programs(1) - 1 - place, place).to(tl.int64)
