"""Training of multilayer perceptrons on a CPU, in memory that is laid out once and used for every wave.

The arithmetic is that of `stacked.ChainModel`, bit for bit. For models this small, getting memory for every product and
making views of it takes as long as the products: laid out ahead, a wave of five takes half the time, one of sixty
four fifths.

Both passes are here twice, since torch and numpy want the samples of hidden layers at different places: with features
innermost numpy takes up to 1.7 times as long (784-200-10, batch 8), with samples innermost torch up to twice as long
(64-128-64-10, batch 8, a wave of 20; measured by turns on an AMD EPYC with Zen 5).
"""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from walktalk.learning.optimizers import LINE, RowOptimizer, Spread
from walktalk.learning.stacked import ChainModel
from walktalk.learning.stacked.cpu import numpy_multiplies
from walktalk.learning.training.rows import TrainedRows, TrainingData, TrainingRows, step_is_made

WIDTHS_REMEMBERED = 256  # whose views are kept
BYTES_AT_ONCE = 2**22  # of a wave's memory: the products of a wider one wait for what has left the cache


class Layer(NamedTuple):
    """One Linear layer of all rows, and what its forward and backward pass read and write; W rows, B samples."""

    weight: Tensor  # [W, out, in]
    weight_turned: Tensor  # [W, in, out]: the same numbers
    bias: Tensor  # [W, 1, out]; [W, out, 1] in the last layer, and in all where numpy multiplies
    for_weight: Tensor  # where its gradient goes
    for_bias: Tensor  # [W, out]
    entering: Tensor  # [W, B, in]
    entering_turned: Tensor  # [W, in, B]: the same; which of the two is dense depends on who multiplies
    error: Tensor  # [W, out, B]: the derivative by the layer's output
    error_turned: Tensor  # [W, B, out]
    error_before: Tensor | None  # [W, B, in], by numpy [W, in, B]: by what enters it; None in the first layer


class Arrays(NamedTuple):
    """The matrices of a layer that numpy multiplies."""

    weight: np.ndarray
    weight_turned: np.ndarray
    for_weight: np.ndarray
    entering: np.ndarray
    entering_turned: np.ndarray
    leaving: np.ndarray  # [W, out, B]: what enters the next layer, or the scores
    error: np.ndarray
    error_before: np.ndarray | None


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
    arrays: tuple[Arrays, ...]  # of the layers; empty where torch multiplies


class ChainTraining:
    """Trains waves of a `ChainModel` on a CPU."""

    def __init__(self, model: ChainModel, optimizer: RowOptimizer, data: TrainingData, local_steps: int) -> None:
        self.model, self.optimizer, self.sampler, self.local_steps = model, optimizer, data.sampler, local_steps
        assert isinstance(data.inputs, Tensor), "`fits_chain` says so"
        assert isinstance(data.targets, Tensor), "`fits_chain` says so"
        self.inputs, self.targets = data.inputs.flatten(1), data.targets
        self.shapes = [tuple(entry.shape) for entry in model.layout.parameters[::2]]  # (out, in) of every layer
        self.widest = max(1, BYTES_AT_ONCE // (4 * sum(self.lengths(LINE)) // LINE))
        self.memory: list[Tensor] = []
        self.spaces: dict[tuple[int, bool], Space] = {}  # by width, and whether numpy multiplies
        self.busy = threading.Lock()

    def __call__(self, given: TrainingRows) -> TrainedRows:
        if self.needs_a_twin(len(given.rows)):
            return self(given.twice()).first()
        rows, state = given.rows, given.state
        with self.busy, torch.no_grad():  # two threads may train with one trainer, but not in the same memory
            space = self.space(len(rows))
            for parameter, part in zip(space.parameters, rows.split(space.spread.sizes, dim=1), strict=True):
                parameter.copy_(part)
            optimizer = self.optimizer.begin(given.lr, state, space.spread)
            chosen = self.sampler.batches(given.parts, given.keys, self.local_steps)
            truth = self.targets.index_select(0, chosen.view(-1)).view(self.local_steps, len(rows), 1, -1)
            places = chosen.view(self.local_steps, -1)
            there, back = (forward_by_numpy, backward_by_numpy) if space.arrays else (forward, backward)
            for step in range(self.local_steps):
                torch.index_select(self.inputs, 0, places[step], out=space.samples)
                there(space)
                back(space, truth[step])
                optimizer.step(space.weights, space.gradients)
                step_is_made()
            return TrainedRows(torch.cat(space.parameters, dim=1), None if state is None else optimizer.state())

    def needs_a_twin(self, rows: int) -> bool:
        """Whether a row has other bytes alone than in a wave, and so is computed twice.

        A single product is split over threads, a batch of them is not, and they round differently.
        """
        return rows == 1 and torch.get_num_threads() > 1

    @property
    def rows_at_once(self) -> int:
        """The widest wave that pays; a wider one is better trained in pieces."""
        return self.widest

    # -- memory -------------------------------------------------------------------------------------------------------

    def space(self, rows: int) -> Space:
        """The memory for a wave of that width; narrower ones share that of the widest."""
        kind = rows, numpy_multiplies(self.inputs)
        if kind not in self.spaces:
            lengths = self.lengths(rows)
            if not self.memory or any(len(m) < length for m, length in zip(self.memory, lengths, strict=True)):
                self.memory = [torch.zeros(length) for length in lengths]
                self.spaces.clear()
            if len(self.spaces) >= WIDTHS_REMEMBERED:
                self.spaces.clear()
            self.spaces[kind] = self.laid_out(*kind)
        return self.spaces[kind]

    def lengths(self, rows: int) -> list[int]:
        """Numbers in weights and gradients; in what enters each layer, its error before; in the scores and errors."""
        batch, vector = self.sampler.batch_size, self.spread(rows).length
        entering = [rows * batch * features for _, features in self.shapes]
        scores = rows * batch * self.shapes[-1][0]
        return [vector, vector, *entering, *entering[1:], scores, scores]

    def spread(self, rows: int) -> Spread:
        return Spread(rows, tuple(entry.end - entry.start for entry in self.model.layout.parameters))

    def laid_out(self, rows: int, by_numpy: bool) -> Space:
        batch, depth, classes = self.sampler.batch_size, len(self.shapes), self.shapes[-1][0]
        pieces = [memory[:length] for memory, length in zip(self.memory, self.lengths(rows), strict=True)]
        weights, gradients = pieces[:2]
        samples = pieces[2].view(rows, batch, -1)
        inner = [(rows, features, batch) if by_numpy else (rows, batch, features) for _, features in self.shapes[1:]]
        hidden = [piece.view(shape) for piece, shape in zip(pieces[3 : 2 + depth], inner, strict=True)]
        entering = [samples, *(one.transpose(1, 2) if by_numpy else one for one in hidden)]
        before = [piece.view(shape) for piece, shape in zip(pieces[2 + depth : -2], inner, strict=True)]
        scores, last_error = (piece.view(rows, classes, batch) for piece in pieces[-2:])
        errors = [*(one if by_numpy else one.transpose(1, 2) for one in before), last_error]
        own = list(self.model.layout.dense_views(weights, rows).values())
        places = list(self.model.layout.dense_views(gradients, rows).values())
        layers = tuple(
            Layer(
                weight=own[2 * k],
                weight_turned=own[2 * k].transpose(1, 2),
                bias=own[2 * k + 1].unsqueeze(2 if by_numpy or k == depth - 1 else 1),
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
        spread = self.spread(rows)
        return Space(
            spread,
            weights,
            gradients,
            spread.views(weights),
            samples.view(rows * batch, -1),
            scores,
            minus_one,
            torch.tensor(float(batch)),
            layers,
            layers[::-1],
            arrays_of(layers, scores) if by_numpy else (),
        )


def arrays_of(layers: tuple[Layer, ...], scores: Tensor) -> tuple[Arrays, ...]:
    leaving = [*(layer.entering_turned for layer in layers[1:]), scores]
    return tuple(
        Arrays(
            layer.weight.numpy(),
            layer.weight_turned.numpy(),
            layer.for_weight.numpy(),
            layer.entering.numpy(),
            layer.entering_turned.numpy(),
            out.numpy(),
            layer.error.numpy(),
            None if layer.error_before is None else layer.error_before.numpy(),
        )
        for layer, out in zip(layers, leaving, strict=True)
    )


def forward(space: Space) -> None:
    """The forward pass from the samples to the scores, keeping what enters each layer."""
    layers = space.layers
    for layer, following in pairwise(layers):
        torch.baddbmm(layer.bias, layer.entering, layer.weight_turned, out=following.entering).relu_()
    last = layers[-1]
    # [W, classes, B]: a softmax over ten classes is much faster when the samples are innermost.
    torch.baddbmm(last.bias, last.weight, last.entering_turned, out=space.scores)


def backward(space: Space, truth: Tensor) -> None:
    """The backward pass from the scores to the gradients; `truth` [W, 1, B] holds the classes."""
    error_of_scores(space, truth)
    for layer in space.backwards:
        torch.bmm(layer.error, layer.entering, out=layer.for_weight)
        torch.sum(layer.error, 2, out=layer.for_bias)
        before = layer.error_before
        if before is not None:
            torch.bmm(layer.error_turned, layer.weight, out=before)
            relu_backward(before, layer.entering, 0, grad_input=before)


def error_of_scores(space: Space, truth: Tensor) -> None:
    error = space.backwards[0].error
    torch.softmax(space.scores, 1, out=error)
    error.scatter_add_(1, truth, space.minus_one).div_(space.batch)


def forward_by_numpy(space: Space) -> None:
    """The forward pass with products by numpy, the samples innermost."""
    layers = space.layers
    for layer, following, array in zip(layers, layers[1:], space.arrays, strict=False):
        np.matmul(array.weight, array.entering_turned, out=array.leaving)
        following.entering_turned.add_(layer.bias).relu_()
    last = space.arrays[-1]
    np.matmul(last.weight, last.entering_turned, out=last.leaving)
    space.scores.add_(layers[-1].bias)


def backward_by_numpy(space: Space, truth: Tensor) -> None:
    error_of_scores(space, truth)
    for layer, array in zip(space.backwards, reversed(space.arrays), strict=True):
        np.matmul(array.error, array.entering, out=array.for_weight)
        torch.sum(layer.error, 2, out=layer.for_bias)
        before = layer.error_before
        if before is not None:
            np.matmul(array.weight_turned, array.error, out=array.error_before)
            relu_backward(before, layer.entering_turned, 0, grad_input=before)


relu_backward = torch.ops.aten.threshold_backward.grad_input
