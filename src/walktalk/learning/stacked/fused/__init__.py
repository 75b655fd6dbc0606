"""Kernels of our own for stacked convolutional models on a GPU: convolution, batch norm and ReLU in few passes."""

from typing import Any

from walktalk.learning.stacked.fused.recipes import Plan, is_possible, plan


def sgd(*arguments: Any) -> None:
    """A step of SGD on a GPU in one pass; see `launch.sgd`. (Triton is imported only where it is used.)"""
    from walktalk.learning.stacked.fused import launch

    launch.sgd(*arguments)


__all__ = ["Plan", "is_possible", "plan", "sgd"]
