"""Columns of very different size: the commonest reason why own data trains badly, and one that no advice can mend."""

from __future__ import annotations

import torch

from walktalk.learning import Task

FAR = 30.0  # from 1: a column's curvature is the square of its size, and rates and initial weights are made for 1


def unscaled(task: Task) -> str:
    """What to do about it, to be put at the end of a sentence; nothing where columns are of about the same size."""
    sizes = sizes_of(task.inputs, task.inputs.dim() == 2 if isinstance(task.inputs, torch.Tensor) else False)
    if sizes is not None:
        return (
            f"; the input columns are of size {sizes[0]:.2g} to {sizes[1]:.2g}: bring each to mean 0 and deviation 1, "
            "by numbers that all sites share, and ask again"
        )
    sizes = sizes_of(task.targets, True)
    if sizes is not None:
        return f"; the targets are of size {sizes[1]:.2g}: divide them by a number that all sites share, and ask again"
    return ""


def sizes_of(samples: object, in_columns: bool) -> tuple[float, float] | None:
    """The least and the largest size of a column, where the largest is far from 1; None where it is not."""
    if not in_columns or not isinstance(samples, torch.Tensor) or not samples.is_floating_point():
        return None
    sizes = samples.reshape(len(samples), -1).double().square().mean(0).sqrt()
    sizes = sizes[sizes > 0]
    if len(sizes) == 0 or not bool(torch.isfinite(sizes).all()):
        return None
    least, largest = float(sizes.min()), float(sizes.max())
    # Smaller ones beside them are common, as rare words or the corners of pictures are.
    return None if 1 / FAR <= largest <= FAR else (least, largest)
