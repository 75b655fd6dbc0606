"""One row by torch's own layers, with the numbers that it has in a wave.

Most of torch's layers round as stacked ones do. Two do not: a layer norm, which adds and multiplies at once, and a
dropout, whose mask is drawn from torch's random numbers. Those do here what they do in a wave.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from walktalk.learning.stacked.laid import masks, stream
from walktalk.learning.stacked.model import Gradients
from walktalk.learning.stacked.norms import nothing
from walktalk.learning.stacked.sequential import SequentialModel
from walktalk.learning.task import Loss


class LoneModel(SequentialModel):
    """A `SequentialModel` of rows that are in waves at other times."""

    def __init__(self, module: nn.Module, loss: Loss, with_buffers: bool = True) -> None:
        super().__init__(module, loss, with_buffers)
        self.draws = False  # of torch's random numbers it needs none
        self.drops = Drops()
        for part in self.worker.modules():  # copies, so that each may become one of another kind
            if type(part) is nn.LayerNorm and part.elementwise_affine:
                part.__class__ = LoneLayerNorm
            elif type(part) is nn.Dropout:
                part.__class__ = LoneDropout
                part.drops = self.drops  # type: ignore[assignment]

    def wave(self, weights: Tensor, buffers: Tensor, keys: Tensor) -> Gradients:
        of_step = super().wave(weights, buffers, keys)

        def gradients(inputs: Tensor, targets: Tensor, step: int) -> Tensor:
            self.drops.begin(keys, step)
            return of_step(inputs, targets, step)

        return gradients


class Drops:
    """The masks of a row's training; those of some steps are drawn at once, since a draw takes long for few numbers."""

    AT_ONCE = 8  # steps
    FEW = 2**14  # numbers of a mask, up to which it pays

    def __init__(self) -> None:
        self.keys, self.step, self.draws = torch.zeros(1, dtype=torch.int64), 0, 0
        self.drawn: dict[int, Tensor] = {}  # of the present steps, by the dropout's turn

    def begin(self, keys: Tensor, step: int) -> None:
        """A step of the row with these keys [1] begins."""
        self.keys, self.step, self.draws = keys, step, 0
        if step % self.AT_ONCE == 0:
            self.drawn.clear()

    def dropped(self, x: Tensor, p: float) -> Tensor:
        """Dropout on one row's x; with the masks of `Pass.dropped`."""
        self.draws += 1
        first, shape = self.step // self.AT_ONCE * self.AT_ONCE, tuple(x.shape)
        if x.numel() > self.FEW:
            return x * masks(stream(self.keys, self.step, self.draws), (1, *shape), p, x)[0]
        found = self.drawn.get(self.draws)
        if found is None or found.shape[1:] != shape:
            steps = torch.arange(first, first + self.AT_ONCE)
            found = masks(stream(self.keys, steps, self.draws), (self.AT_ONCE, *shape), p, x)
            self.drawn[self.draws] = found
        return x * found[self.step - first]


class LoneLayerNorm(nn.LayerNorm):
    """Normalized first, then multiplied, then added to, as `norms.BatchedLayerNorm` does it."""

    def forward(self, x: Tensor) -> Tensor:
        shape = tuple(self.normalized_shape)
        out = functional.layer_norm(x, shape, *nothing(x, shape), self.eps) * self.weight
        return out if self.bias is None else out.add_(self.bias)


class LoneDropout(nn.Dropout):
    """With the mask that the row has in a wave."""

    drops: Drops

    def forward(self, x: Tensor) -> Tensor:
        return self.drops.dropped(x, self.p) if self.training and self.p > 0.0 else x
