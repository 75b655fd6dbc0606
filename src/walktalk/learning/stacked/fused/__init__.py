"""Kernels of our own for stacked models on a GPU: convolutions with their norm and ReLU, layer norm, attention."""

from typing import Any

from torch import Tensor

from walktalk.learning.stacked.fused.planning import Plan, has_token_kernel, is_possible, plan


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


def attend(*arguments: Any) -> Tensor:
    """Attention of short texts; see `tokens.attend`."""
    from walktalk.learning.stacked.fused import tokens

    return tokens.attend(*arguments)


def can_attend(*arguments: Any) -> bool:
    """Whether there is a kernel for it; see `tokens.can_attend`."""
    from walktalk.learning.stacked.fused import tokens

    return tokens.can_attend(*arguments)


def layer_norm(*arguments: Any) -> Tensor:
    """Layer norm with weights of each row's own; see `tokens.LayerNorm`."""
    from walktalk.learning.stacked.fused import tokens

    out: Tensor = tokens.LayerNorm.apply(*arguments)  # type: ignore[no-untyped-call]
    return out


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


def spread_out(*arguments: Any) -> None:
    """Rows as one vector, parameter after parameter; see `rows.spread_out`."""
    from walktalk.learning.stacked.fused import rows

    rows.spread_out(*arguments)


def spread_over(*arguments: Any) -> None:
    """A number of each row over such a vector; see `rows.spread_over`."""
    from walktalk.learning.stacked.fused import rows

    rows.spread_over(*arguments)


def scatter(*arguments: Any) -> None:
    """The way back; see `rows.scatter`."""
    from walktalk.learning.stacked.fused import rows

    rows.scatter(*arguments)


__all__ = [
    "Plan",
    "attend",
    "can_attend",
    "combine_rows",
    "gather",
    "has_token_kernel",
    "is_possible",
    "keep_part",
    "layer_norm",
    "plan",
    "scatter",
    "sgd",
    "sgd_between",
    "sgd_by_row",
]
