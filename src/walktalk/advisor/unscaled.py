"""Columns of very different size: the commonest reason why own data trains badly, and one that no advice can mend."""

from __future__ import annotations

import torch

from walktalk.learning import Task

FAR = 30.0  # from 1: a column's curvature is the square of its size, and rates and initial weights are made for 1


def unscaled(task: Task) -> str:
    """What to do about it, to be put at the end of a sentence; nothing where columns are of about the same size."""
    inputs = task.inputs
    if not isinstance(inputs, torch.Tensor) or inputs.dim() != 2 or not inputs.is_floating_point():
        return ""
    sizes = inputs.double().square().mean(0).sqrt()
    sizes = sizes[sizes > 0]
    if len(sizes) == 0 or not bool(torch.isfinite(sizes).all()):
        return ""
    least, largest = float(sizes.min()), float(sizes.max())
    if 1 / FAR <= largest <= FAR:  # smaller ones beside them are common, as rare words or the corners of pictures are
        return ""
    return (
        f"; the input columns are of size {least:.2g} to {largest:.2g}: bring each to mean 0 and deviation 1, by "
        "numbers that all sites share, and ask again"
    )
