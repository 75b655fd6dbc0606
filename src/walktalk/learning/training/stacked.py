"""Training of whole waves by the stacked form of a model, and of a single row with the bits that it has in a wave."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from operator import itemgetter
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from walktalk.learning.optimizers import RowOptimizer, Spread, to_rows, to_vector
from walktalk.learning.stacked import StackedModel
from walktalk.learning.training.rows import AddedToGradients, TrainedRows, TrainingData, TrainingForm, TrainingRows

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
