"""What a training of many rows is given and gives back, as records that all forms of training share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from walktalk.learning.optimizers import Spread, to_vector
from walktalk.learning.samples import Column, Sampler, Samples, chosen
from walktalk.learning.task import Augment


class Extras(NamedTuple):
    """What a protocol asks of a training beyond the study's settings (`protocols.effects.Train`), for all rows alike.

    Its tensors have a row for each row of the wave.
    """

    steps: int  # local steps, or batches of a gradient
    gradient: bool = False  # the mean gradient over the batches is wanted, and no step is made
    correction: Tensor | None = None  # [W, P]: added to every gradient
    anchor: Tensor | None = None  # [W, P]: every step is pulled back to it
    pulls: Tensor | None = None  # [W]: by so much times the difference

    @property
    def kind(self) -> tuple[int, bool, bool, bool]:
        """Tells apart trainings that differ in more than the numbers in their tensors."""
        return self.steps, self.gradient, self.correction is not None, self.anchor is not None

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Extras:
        """Replaces each tensor by what `change` makes of it."""
        correction, anchor, pulls = (
            None if tensor is None else change(tensor) for tensor in (self.correction, self.anchor, self.pulls)
        )
        return self._replace(correction=correction, anchor=anchor, pulls=pulls)


class TrainingRows(NamedTuple):
    """The rows of a wave with all that their training needs to know; W of them."""

    rows: Tensor  # [W, width]: the models to start from
    parts: Tensor  # [W]: whose data each is trained on
    keys: Tensor  # [W]: what each row's batches and random numbers are drawn from
    lr: Tensor  # [W]: learning rates
    state: Tensor | None = None  # [W, S]: the optimizer's states; None: each starts from a fresh one
    extras: Extras | None = None
    on_loan: bool = False  # whether the result may be memory that the next training overwrites

    def mapped(self, change: Callable[[Tensor], Tensor]) -> TrainingRows:
        """Replaces each tensor by what `change` makes of it, as for a piece of the wave."""
        return TrainingRows(
            change(self.rows),
            change(self.parts),
            change(self.keys),
            change(self.lr),
            None if self.state is None else change(self.state),
            None if self.extras is None else self.extras.mapped(change),
            self.on_loan,
        )

    def tensors(self) -> list[Tensor]:
        """All tensors that are there, in a fixed order."""
        more = (self.state, *(() if self.extras is None else self.extras[2:]))
        return [self.rows, self.parts, self.keys, self.lr, *(tensor for tensor in more if tensor is not None)]

    def twice(self) -> TrainingRows:
        """A single row and a twin of it, for forms in which a row alone has other bits than in a wave."""
        return self.mapped(lambda tensor: tensor.expand(2, *tensor.shape[1:]))


class TrainedRows(NamedTuple):
    """Rows as a training has left them."""

    rows: Tensor  # [W, width], or [W, P] where gradients were asked for
    state: Tensor | None = None  # the optimizer's states, where they were given

    def first(self) -> TrainedRows:
        """The first row alone, as of a row and its twin."""
        return TrainedRows(self.rows[:1], None if self.state is None else self.state[:1])


class TrainingForm(Protocol):
    """One form of training; all give the same numbers, and differ in where and how fast they can."""

    def __call__(self, given: TrainingRows, /) -> TrainedRows: ...


class TrainingData:
    """The training samples on their device, and which of them are in each row's batches."""

    def __init__(self, inputs: Samples, targets: Samples, sampler: Sampler, augment: Augment | None) -> None:
        """
        - `inputs`, `targets`: all samples, in memory or read when they are wanted.
        - `sampler`: draws from those of each node.
        - `augment`: changes batches in training.
        """
        self.inputs, self.targets, self.sampler, self.augment = inputs, targets, sampler, augment

    @property
    def is_read(self) -> bool:
        """Whether samples are read batch by batch: then a training waits for them, and cannot be one CUDA graph."""
        return isinstance(self.inputs, Column)

    def batch(self, drawn: Tensor, keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets [W, B, …] of a step, of the samples that `Sampler.batches` has drawn for all steps."""
        inputs, targets = (chosen(each, drawn[step], keys, step) for each in (self.inputs, self.targets))
        return inputs if self.augment is None else self.augment(inputs, keys, step), targets


class AddedToGradients:
    """The tensors of `Extras` as vectors, and the sum of the gradients so far."""

    def __init__(self, extras: Extras, spread: Spread, width: int, device: torch.device) -> None:
        def vector(rows: Tensor | None) -> Tensor | None:
            return None if rows is None else to_vector(rows[:, :width], spread)

        self.gradient = extras.gradient
        self.correction, self.anchor = vector(extras.correction), vector(extras.anchor)
        self.pulls = None if extras.pulls is None else spread.over(extras.pulls)
        self.total = torch.zeros(spread.length, device=device)

    def corrected(self, found: Tensor, weights: Tensor) -> Tensor:
        """A gradient with what is added to it."""
        if self.gradient:
            self.total = self.total + found
        if self.correction is not None:
            found = found + self.correction
        if self.anchor is not None and self.pulls is not None:
            found = found + self.pulls * (weights - self.anchor)
        return found
