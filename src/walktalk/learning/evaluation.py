"""Loss, accuracy and metrics of one's own over all samples, for many rows at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walktalk.errors import ModelError
from walktalk.learning.samples import Column, Samples, pieces
from walktalk.learning.stacked import StackedModel, row_losses
from walktalk.learning.stacked.model import is_cross_entropy
from walktalk.learning.task import Lengths, Loss, Metric


def mean_loss(model: StackedModel, rows: Tensor, inputs: Samples, targets: Samples, lengths: Lengths | None) -> Tensor:
    """Over samples, of every row, [W]."""
    total = torch.zeros(len(rows), device=rows.device, dtype=torch.float64)
    for x, y in batches(model, inputs, targets, lengths):
        with torch.no_grad():
            outputs = model.outputs(rows, x)
            total += row_losses(model.loss, outputs, y.expand(len(rows), *y.shape)).double() * len(y)
    return (total / len(inputs)).float()


@dataclass(frozen=True)
class Test:
    """What is measured on the test samples."""

    inputs: Samples
    targets: Samples
    loss: Loss
    lengths: Lengths | None = None
    predictions: Callable[[Tensor], Tensor] | None = None  # from the model's outputs, where they hold more than those
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    def of(self, model: StackedModel, rows: Tensor) -> dict[str, Tensor]:
        """Accuracy, loss and the person's own metrics of every row, [W] each, from one pass over the samples."""
        right, losses = (torch.zeros(len(rows), device=rows.device, dtype=torch.float64) for _ in range(2))
        judged = torch.zeros((), device=rows.device, dtype=torch.float64)
        kept: list[Tensor] = []
        for x, y in batches(model, self.inputs, self.targets, self.lengths):
            outputs = model.outputs(rows, x)
            with torch.no_grad():
                losses += row_losses(self.loss, outputs, y.expand(len(rows), *y.shape)).double() * len(y)
            outputs = outputs if self.predictions is None else self.predictions(outputs)
            right += self.sum_of_hits(outputs, y, is_cross_entropy(model.loss))
            judged += (y >= 0).sum()
            if self.metrics:
                kept.append(outputs.cpu())
        count = len(self.inputs)
        found = {"test_accuracy": (right / judged).float(), "test_loss": (losses / count).float()}
        return found | (self.own(torch.cat(kept, 1), rows.device) if kept else {})

    def sum_of_hits(self, outputs: Tensor, targets: Tensor, by_cross_entropy: bool) -> Tensor:
        """How many targets each row has right; a negative one, such as torch's −100, is to be ignored."""
        dimension = None
        if not targets.is_floating_point():
            dimension = dimension_of_classes(outputs, targets, by_cross_entropy)
        if dimension is None:
            return torch.full((len(outputs),), math.nan, device=outputs.device, dtype=torch.float64)
        right = hits(outputs, targets, dimension)
        return torch.where(targets >= 0, right, 0.0).flatten(1).sum(1)

    def own(self, outputs: Tensor, device: torch.device) -> dict[str, Tensor]:
        """The person's own metrics, each of all samples at once."""
        targets = torch.cat(list(pieces(self.targets, len(self.targets)))).cpu()
        found = {}
        for name, metric in self.metrics.items():
            try:
                values = [float(metric(row, targets)) for row in outputs]
            except Exception as error:  # whatever a person's function does
                reason = " ".join(str(error).split())
                raise ModelError(f"metrics: {name} fails on the test samples: {reason}") from error
            found[name] = torch.tensor(values, device=device)
        return found


def batches(
    model: StackedModel, inputs: Samples, targets: Samples, lengths: Lengths | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """All samples. With lengths, a batch is cut where only padding is left: its tokens take as long as any."""
    samples = model.samples_at_once
    for x, y in zip(pieces(inputs, samples), pieces(targets, samples), strict=True):
        yield x if lengths is None else x[:, : int(lengths(x).max())], y


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
