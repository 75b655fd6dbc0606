"""Training of large models on a CPU, one row at a time, in memory that is laid out once and used for every training.

A row of a hundred megabytes that is got anew, filled and given back costs a page fault for every four kilobytes. With
Adam that was ten such rows a training: as long as forward and backward pass together.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from walktalk.learning.optimizers import RowOptimizer
from walktalk.learning.sampling import Sampler
from walktalk.learning.stacked import SequentialModel
from walktalk.learning.stacked.model import Gradients
from walktalk.learning.task import Augment


class RowTraining:
    """Trains single rows of a `SequentialModel` on a CPU."""

    def __init__(
        self, model: SequentialModel, optimizer: RowOptimizer, sampler: Sampler, data: tuple[Tensor, Tensor],
        steps: int, augment: Augment | None,
    ) -> None:  # fmt: skip
        self.model, self.optimizer, self.sampler, self.steps, self.augment = model, optimizer, sampler, steps, augment
        self.inputs, self.targets = data
        self.gradients: Gradients | None = None
        self.busy = threading.Lock()

    def __call__(
        self, rows: Tensor, parts: Tensor, keys: Tensor, lr: Tensor, state: Tensor | None, *, on_loan: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """One row trained; on loan, what is returned is this memory itself, and good until the next training."""
        with self.busy:
            gradients = self.gradients or self.lay_out()
            self.row.copy_(rows)
            self.keys.copy_(keys)
            self.state.zero_() if state is None else self.state.copy_(state)
            batches = self.sampler.batches(parts, keys, self.steps)
            rate = float(lr[0])
            for step in range(self.steps):
                inputs, targets = self.inputs[batches[step]], self.targets[batches[step]]
                if self.augment is not None:
                    inputs = self.augment(inputs, keys, step)
                found = gradients(inputs, targets, step)
                with torch.no_grad():
                    self.optimizer.step_alone(self.weights, found, self.state[0], rate)
            after = None if state is None else self.state
            if on_loan:
                return self.row, after
            return self.row.clone(), None if after is None else after.clone()

    def lay_out(self) -> Gradients:
        """The memory: a row, its gradients, its optimizer's state. A single row is its own vector of parameters."""
        layout = self.model.layout
        self.row = torch.zeros(1, layout.width)
        self.weights, buffers = self.row[0, : layout.parameter_width], self.row[:, layout.parameter_width :]
        self.state = torch.zeros(1, self.optimizer.state_width(layout.parameter_width))
        self.keys = torch.zeros(1, dtype=torch.int64)
        self.gradients = self.model.wave(self.weights, buffers, self.keys)
        return self.gradients
