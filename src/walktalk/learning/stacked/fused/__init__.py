"""Kernels of our own for stacked convolutional models on a GPU: convolution, batch norm and ReLU in few passes."""

from typing import Any

from walktalk.learning.stacked.fused.recipes import Plan, is_possible, plan


def sgd(*arguments: Any) -> None:
    """A step of SGD on a GPU in one pass; see `launch.sgd`. (Triton is imported only where it is used.)"""
    from walktalk.learning.stacked.fused import launch

    launch.sgd(*arguments)


def sgd_by_row(*arguments: Any) -> None:
    """The same, parameter by parameter; see `launch.sgd_by_row`."""
    from walktalk.learning.stacked.fused import launch

    launch.sgd_by_row(*arguments)


def sgd_between(*arguments: Any) -> None:
    """The same, into rows of a matrix; see `launch.sgd_between`."""
    from walktalk.learning.stacked.fused import launch

    launch.sgd_between(*arguments)


def combine_rows(*arguments: Any) -> None:
    """Linear combinations of rows on a GPU in one pass; see `rows.combine`."""
    from walktalk.learning.stacked.fused import rows

    rows.combine(*arguments)


def keep_part(*arguments: Any) -> None:
    """Every so many-th number of some rows, in one pass; see `rows.keep_part`."""
    from walktalk.learning.stacked.fused import rows

    rows.keep_part(*arguments)


def gather(*arguments: Any) -> None:
    """Columns of some rows of a matrix; see `rows.gather`."""
    from walktalk.learning.stacked.fused import rows

    rows.gather(*arguments)


def scatter(*arguments: Any) -> None:
    """The way back; see `rows.scatter`."""
    from walktalk.learning.stacked.fused import rows

    rows.scatter(*arguments)


__all__ = [
    "Plan",
    "combine_rows",
    "gather",
    "is_possible",
    "keep_part",
    "plan",
    "scatter",
    "sgd",
    "sgd_between",
    "sgd_by_row",
]
