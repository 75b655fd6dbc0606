"""Training of multilayer perceptrons on a CPU, in memory that is laid out once and used for every wave.

The arithmetic is that of `stacked.chain`, bit for bit. For models this small, getting memory for every product and
making views of it takes as long as the products: laid out ahead, a wave of five takes half the time, one of sixty
four fifths.
"""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from walktalk.learning.optimizers import LINE, RowOptimizer, Spread
from walktalk.learning.sampling import Sampler
from walktalk.learning.stacked import ChainModel

WIDTHS_REMEMBERED = 256  # whose views are kept
BYTES_AT_ONCE = 2**22  # of a wave's memory: the products of a wider one wait for what has left the cache


class Layer(NamedTuple):
    """One Linear layer of all rows, and what its forward and backward pass read and write; W rows, B samples."""

    weight: Tensor  # [W, out, in]
    weight_turned: Tensor  # [W, in, out]: the same numbers
    bias: Tensor  # [W, 1, out], and [W, out, 1] in the last layer
    for_weight: Tensor  # where its gradient goes
    for_bias: Tensor  # [W, out]
    entering: Tensor  # [W, B, in]
    entering_turned: Tensor  # [W, in, B]
    error: Tensor  # [W, out, B]: the derivative by the layer's output
    error_turned: Tensor  # [W, B, out]
    error_before: Tensor | None  # [W, B, in]: the derivative by what enters it; None in the first layer


class Space(NamedTuple):
    """The memory of a wave of one width."""

    spread: Spread
    weights: Tensor  # `Spread`'s vector
    gradients: Tensor
    parameters: tuple[Tensor, ...]  # views of the weights, [W, size] each
    samples: Tensor  # [W · B, in]: what enters the first layer
    scores: Tensor  # [W, classes, B]
    minus_one: Tensor  # [W, 1, B]
    batch: Tensor  # the number B: torch divides by a tensor in a third of the time
    layers: tuple[Layer, ...]
    backwards: tuple[Layer, ...]  # the same, the last first


class ChainTraining:
    """Trains waves of a `ChainModel` on a CPU."""

    def __init__(
        self, model: ChainModel, optimizer: RowOptimizer, sampler: Sampler, data: tuple[Tensor, Tensor], steps: int
    ) -> None:
        self.model, self.optimizer, self.sampler, self.steps = model, optimizer, sampler, steps
        self.inputs, self.targets = data[0].flatten(1), data[1]
        self.shapes = [tuple(entry.shape) for entry in model.layout.parameters[::2]]  # (out, in) of every layer
        self.memory: list[Tensor] = []
        self.spaces: dict[int, Space] = {}
        self.busy = threading.Lock()

    def __call__(
        self, rows: Tensor, parts: Tensor, keys: Tensor, lr: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        if self.needs_a_twin(len(rows)):
            rows, parts, keys, lr = (tensor.expand(2, *tensor.shape[1:]) for tensor in (rows, parts, keys, lr))
            trained, after = self(rows, parts, keys, lr, None if state is None else state.expand(2, -1))
            return trained[:1], None if after is None else after[:1]
        with self.busy, torch.no_grad():  # two threads may train with one trainer, but not in the same memory
            space = self.space(len(rows))
            for parameter, part in zip(space.parameters, rows.split(space.spread.sizes, dim=1), strict=True):
                parameter.copy_(part)
            optimizer = self.optimizer.begin(lr, state, space.spread)
            chosen = self.sampler.batches(parts, keys, self.steps)
            truth = self.targets.index_select(0, chosen.view(-1)).view(self.steps, len(rows), 1, -1)
            places = chosen.view(self.steps, -1)
            for step in range(self.steps):
                torch.index_select(self.inputs, 0, places[step], out=space.samples)
                forward(space)
                backward(space, truth[step])
                optimizer.step(space.weights, space.gradients)
            return torch.cat(space.parameters, dim=1), None if state is None else optimizer.state()

    def needs_a_twin(self, rows: int) -> bool:
        """Whether a row has other bytes alone than in a wave, and so is computed twice.

        A single product is split over threads, a batch of them is not, and they round differently.
        """
        return rows == 1 and torch.get_num_threads() > 1

    @property
    def rows_at_once(self) -> int:
        """The widest wave that pays; a wider one is better trained in pieces."""
        return max(1, BYTES_AT_ONCE // (4 * sum(self.lengths(LINE)) // LINE))

    # -- memory -------------------------------------------------------------------------------------------------------

    def space(self, rows: int) -> Space:
        """The memory for a wave of that width; narrower ones share that of the widest."""
        if rows not in self.spaces:
            lengths = self.lengths(rows)
            if not self.memory or any(len(m) < length for m, length in zip(self.memory, lengths, strict=True)):
                self.memory = [torch.zeros(length) for length in lengths]
                self.spaces.clear()
            if len(self.spaces) >= WIDTHS_REMEMBERED:
                self.spaces.clear()
            self.spaces[rows] = self.laid_out(rows)
        return self.spaces[rows]

    def lengths(self, rows: int) -> list[int]:
        """Numbers in weights and gradients; in what enters each layer, its error before; in the scores and errors."""
        batch, vector = self.sampler.batch_size, self.spread(rows).length
        entering = [rows * batch * features for _, features in self.shapes]
        scores = rows * batch * self.shapes[-1][0]
        return [vector, vector, *entering, *entering[1:], scores, scores]

    def spread(self, rows: int) -> Spread:
        return Spread(rows, tuple(entry.end - entry.start for entry in self.model.layout.parameters))

    def laid_out(self, rows: int) -> Space:
        batch, depth, classes = self.sampler.batch_size, len(self.shapes), self.shapes[-1][0]
        pieces = [memory[:length] for memory, length in zip(self.memory, self.lengths(rows), strict=True)]
        weights, gradients = pieces[:2]
        entering = [
            piece.view(rows, batch, features)
            for piece, (_, features) in zip(pieces[2 : 2 + depth], self.shapes, strict=True)
        ]
        before = [p.view_as(e) for p, e in zip(pieces[2 + depth : -2], entering[1:], strict=True)]
        scores, last_error = (piece.view(rows, classes, batch) for piece in pieces[-2:])
        errors = [*(b.transpose(1, 2) for b in before), last_error]
        own = list(self.model.layout.dense_views(weights, rows).values())
        places = list(self.model.layout.dense_views(gradients, rows).values())
        layers = tuple(
            Layer(
                weight=own[2 * k],
                weight_turned=own[2 * k].transpose(1, 2),
                bias=own[2 * k + 1].unsqueeze(2 if k == depth - 1 else 1),
                for_weight=places[2 * k],
                for_bias=places[2 * k + 1],
                entering=entering[k],
                entering_turned=entering[k].transpose(1, 2),
                error=errors[k],
                error_turned=errors[k].transpose(1, 2),
                error_before=before[k - 1] if k else None,
            )
            for k in range(depth)
        )
        minus_one = torch.full((1, 1, 1), -1.0).expand(rows, 1, batch)
        spread, samples = self.spread(rows), entering[0].view(rows * batch, -1)
        return Space(
            spread,
            weights,
            gradients,
            spread.views(weights),
            samples,
            scores,
            minus_one,
            torch.tensor(float(batch)),
            layers,
            layers[::-1],
        )


def forward(space: Space) -> None:
    """From the samples to the scores, keeping what enters each layer."""
    layers = space.layers
    for layer, following in pairwise(layers):
        torch.baddbmm(layer.bias, layer.entering, layer.weight_turned, out=following.entering).relu_()
    last = layers[-1]
    # [W, classes, B]: a softmax over ten classes is much faster when the samples are innermost.
    torch.baddbmm(last.bias, last.weight, last.entering_turned, out=space.scores)


def backward(space: Space, truth: Tensor) -> None:
    """From the scores to the gradients; `truth` [W, 1, B] holds the classes."""
    error = space.backwards[0].error
    torch.softmax(space.scores, 1, out=error)
    error.scatter_add_(1, truth, space.minus_one).div_(space.batch)
    for layer in space.backwards:
        torch.bmm(layer.error, layer.entering, out=layer.for_weight)
        torch.sum(layer.error, 2, out=layer.for_bias)
        before = layer.error_before
        if before is not None:
            torch.bmm(layer.error_turned, layer.weight, out=before)
            relu_backward(before, layer.entering, 0, grad_input=before)


relu_backward = torch.ops.aten.threshold_backward.grad_input
