"""What a training of many rows is given and gives back, as records that all forms of training share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from operator import itemgetter
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from walktalk.learning.optimizers import RowOptimizer, Spread, to_rows, to_vector
from walktalk.learning.samples import Column, Sampler, Samples, chosen
from walktalk.learning.stacked import StackedModel
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


# -- Who wants to know that a training goes on: a node, which else takes one that lasts for hours for one that hangs ---


class _Listener(threading.local):
    """What is called with every step of the trainings of this thread; None: nobody asks."""

    made: Callable[[], None] | None = None


_listener = _Listener()


@contextmanager
def told_of_steps(tell: Callable[[], None]) -> Iterator[None]:
    """Have a function called at every optimizer step of the trainings in this thread; a CUDA graph is one step."""
    before, _listener.made = _listener.made, tell
    try:
        yield
    finally:
        _listener.made = before


def step_is_made() -> None:
    """A training has made a step; every form says so."""
    if _listener.made is not None:
        _listener.made()


# -- Training of whole waves by the stacked form of a model, and of a single row with the bits that it has in a wave --

NUMBERS_TRIED = 2048  # of models that are trained alone and in a wave, to see whether that is the same


class StackedTraining:
    """Trains all rows of a wave at once. Nothing in it waits for a GPU, so that it can be captured as a graph."""

    def __init__(self, model: StackedModel, optimizer: RowOptimizer, data: TrainingData, local_steps: int) -> None:
        self.model, self.optimizer, self.data, self.local_steps = model, optimizer, data, local_steps

    def __call__(self, given: TrainingRows) -> TrainedRows:
        """Makes `local_steps` steps of the optimizer, or what the extras ask for."""
        rows, extras, state = given.rows, given.extras, given.state
        width, spread = self.model.layout.parameter_width, self.spread(len(rows))
        weights, buffers = to_vector(rows[:, :width], spread), rows[:, width:].clone()
        optimizer = self.optimizer.begin(given.lr, state, spread)
        steps = self.local_steps if extras is None else extras.steps
        added = None if extras is None else AddedToGradients(extras, spread, width, rows.device)
        self.steps(weights, buffers, optimizer.step, given.parts, given.keys, steps, added)
        trained = to_rows(weights if added is None or not added.gradient else added.total / steps, spread)
        if rows.shape[1] > width:
            trained = torch.cat((trained, buffers), dim=1)
        return TrainedRows(trained, None if state is None else optimizer.state())

    def spread(self, rows: int) -> Spread:
        """How the parameters of so many rows lie in a vector."""
        return Spread(rows, tuple(e.end - e.start for e in self.model.layout.parameters))

    def steps(
        self,
        weights: Tensor,
        buffers: Tensor,
        make_step: Callable[[Tensor, Tensor], None],
        parts: Tensor,
        keys: Tensor,
        steps: int,
        added: AddedToGradients | Tensor | None,
    ) -> None:
        """Makes the steps themselves, on weights as a vector and buffers, both changed in place.

        make_step: the optimizer's, of weights and gradients. added: to gradients: a vector, or all that `Extras` may
        ask for.
        """
        gradients = self.model.wave(weights, buffers, keys)
        drawn = self.data.sampler.batches(parts, keys, steps)
        for step in range(steps):
            found = gradients(*self.data.batch(drawn, keys, step), step)
            if len(found) < len(weights):  # from a model that knows nothing of the zeros at the end
                found = functional.pad(found, (0, len(weights) - len(found)))
            with torch.no_grad():
                if isinstance(added, Tensor):
                    found = found.add_(added)
                elif added is not None:
                    found = added.corrected(found, weights)
                if isinstance(added, Tensor) or added is None or not added.gradient:
                    make_step(weights, found)
            step_is_made()


class SameBitsTraining:
    """Stacked training in which a row alone has the bits that it has in a wave.

    How wide a wave is depends on how a run is cut, and that on the clock: nothing of it may show in the records.
    """

    def __init__(self, stacked: StackedTraining, single: TrainingForm | None, is_tried: bool) -> None:
        """
        - `stacked`: trains waves.
        - `single`: trains one row by torch's own layers, which have less to do than stacked ones.
        - `is_tried`: whether to find out if a row has the same bits alone; else it is taken to have them.
        """
        self.stacked, self.single, self.is_tried = stacked, single, is_tried

    def __call__(self, given: TrainingRows) -> TrainedRows:
        if len(given.rows) > 1:
            return self.stacked(given)
        if self.single is not None and given.extras is None and self.way == "single":
            return self.single(given)
        return self.stacked(given) if self.way != "twin" else self.stacked(given.twice()).first()

    @cached_property
    def way(self) -> Literal["single", "plain", "twin"]:
        """How a row alone is trained; tried when first needed, with the threads of the run.

        single: by torch's own layers. plain: as a wave of one. twin: twice, as a wave of two.
        """
        if not self.is_tried:
            return "plain" if self.single is None else "single"
        model = self.stacked.model
        row = model.layout.row(model.module)
        count = max(4, min(64, NUMBERS_TRIED // len(row)))  # few numbers may agree by luck
        noise = torch.rand(count, len(row), generator=torch.Generator().manual_seed(0)) - 0.5
        parts, keys, rates = torch.zeros(count, dtype=torch.int64), torch.arange(count), torch.full((count,), 0.01)
        wave = TrainingRows(row + noise / 16, parts, keys, rates)
        together = self.stacked(wave).rows
        ways: dict[Literal["single", "plain"], TrainingForm | None] = {"single": self.single, "plain": self.stacked}
        for name, train in ways.items():
            if train is not None:
                each = [train(wave.mapped(itemgetter(slice(k, k + 1)))).rows for k in range(count)]
                if torch.equal(together, torch.cat(each)):
                    return name
        return "twin"
