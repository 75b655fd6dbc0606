"""The mean over samples of a loss or of hits, for many rows at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from walktalk.learning.samples import Column, Samples, pieces
from walktalk.learning.stacked import StackedModel, row_losses
from walktalk.learning.stacked.model import is_cross_entropy
from walktalk.learning.task import Lengths


def mean_over_samples(
    model: StackedModel,
    rows: Tensor,
    inputs: Samples,
    targets: Samples,
    *,
    accuracy: bool,
    lengths: Lengths | None,
    predictions: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Of every row, [W]. With lengths, a batch is cut where only padding is left: its tokens take as long as any."""
    total = torch.zeros(len(rows), device=rows.device, dtype=torch.float64)
    samples = model.samples_at_once
    for x, y in zip(pieces(inputs, samples), pieces(targets, samples), strict=True):
        outputs = model.outputs(rows, x if lengths is None else x[:, : int(lengths(x).max())])
        if accuracy:
            outputs = outputs if predictions is None else predictions(outputs)
            dimension = dimension_of_classes(outputs, y, is_cross_entropy(model.loss))
            if dimension is None:
                return torch.full_like(total, math.nan).float()
            total += hits(outputs, y, dimension).flatten(1).mean(1) * len(x)
        else:
            with torch.no_grad():
                total += row_losses(model.loss, outputs, y.expand(len(rows), *y.shape)).double() * len(x)
    return (total / len(inputs)).float()


def hits(outputs: Tensor, targets: Tensor, dimension: int) -> Tensor:
    """1 where the class with the highest score is the target, 0 elsewhere; nan where no score is the highest.

    argmax takes the first class among scores that are not numbers, so that a model that has diverged would be as good
    as the first class is frequent. A score of −∞ is fine: some models rule out a class that way. All on the device,
    since nothing here may wait for it.
    """
    right = (outputs.argmax(dimension) == targets).double()
    return torch.where(outputs.amax(dimension).isfinite(), right, math.nan)


def by_length(inputs: Samples, others: Samples, lengths: Lengths | None) -> tuple[Samples, Samples]:
    """Samples of like length together, so that none is padded for the sake of a much longer one."""
    if lengths is None or isinstance(inputs, Column) or isinstance(others, Column):
        return inputs, others
    order = lengths(inputs).argsort(stable=True)
    return inputs[order], others[order]


def dimension_of_classes(outputs: Tensor, targets: Tensor, by_cross_entropy: bool) -> int | None:
    """Which dimension of the outputs [W, B, …] counts the classes for targets [B, …]; None where there are none.

    torch's cross-entropy has them right after the samples, language models and the like in the end. A single target a
    sample leaves no doubt; where both would fit, the loss decides.
    """
    shape, wanted = outputs.shape[2:], targets.shape[1:]
    after_samples = len(shape) > 0 and shape[1:] == wanted
    in_the_end = len(shape) > 0 and shape[:-1] == wanted
    if after_samples and (by_cross_entropy or not in_the_end):
        return 2
    return outputs.dim() - 1 if in_the_end else None
