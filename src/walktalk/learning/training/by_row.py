"""Training of large models, one row at a time, in memory that is laid out once and used for every training.

On a CPU a row of a hundred megabytes that is got anew, filled and given back costs a page fault for every four
kilobytes. With Adam that was ten such rows a training: as long as forward and backward pass together. On a GPU what
counts are the passes over that memory, and thousands of small kernels, so all steps are one CUDA graph.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from walktalk.learning.memory import keep_freed_memory
from walktalk.learning.optimizers import RowOptimizer, RowSGD, Spread
from walktalk.learning.stacked import SequentialModel
from walktalk.learning.stacked.model import Gradients
from walktalk.learning.training.graphs import recorded, say_that_none_works
from walktalk.learning.training.rows import TrainedRows, TrainingData, TrainingRows


class RowTraining:
    """Trains single rows of a `SequentialModel`; where `graphs` says so, by a CUDA graph."""

    def __init__(
        self,
        model: SequentialModel,
        optimizer: RowOptimizer,
        data: TrainingData,
        local_steps: int,
        graphs: bool = False,
    ) -> None:
        self.model, self.optimizer, self.data, self.local_steps = model, optimizer, data, local_steps
        self.graphs = graphs
        self.graph: torch.cuda.CUDAGraph | None = None
        self.gradients: Gradients | None = None
        self.busy = threading.Lock()

    def __call__(self, given: TrainingRows) -> TrainedRows:
        """Trains one row; on loan, what is returned is this memory itself, and good until the next training."""
        with self.busy:
            if self.gradients is None:
                self.gradients = self.lay_out()
            if self.graphs and self.graph is None:
                self.fill(given)
                self.capture(self.gradients)
            self.fill(given)
            if self.graphs and self.graph is not None:
                self.graph.replay()
            else:
                self.train(self.gradients)
            after = None if given.state is None else self.state
            if given.on_loan:
                return TrainedRows(self.row, after)
            return TrainedRows(self.row.clone(), None if after is None else after.clone())

    def lay_out(self) -> Gradients:
        """Lays out the memory: a row, its gradients, its optimizer's state.

        A single row is its own vector of parameters.
        """
        layout, device = self.model.layout, self.data.inputs.device
        if device.type == "cpu":
            keep_freed_memory()
        length, parameters = self.lengths(device)
        memory = torch.zeros(1, length, device=device)
        self.row, self.weights, buffers = memory[:, : layout.width], memory[0, :parameters], memory[:, parameters:]
        self.states = torch.zeros(1, self.optimizer.state_width(parameters), device=device)
        self.state = self.states[:, : self.optimizer.state_width(layout.parameter_width)]
        self.part, self.key = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        self.rate: float | Tensor = torch.zeros(1, device=device)
        return self.model.wave(self.weights, buffers, self.key)

    def lengths(self, device: torch.device) -> tuple[int, int]:
        """Numbers of a row, and of its parameters; with zeros behind them up to a whole line where SGD may go on into
        them, which else takes the rest by itself (`RowSGD.step_alone`)."""
        layout = self.model.layout
        if device.type != "cpu" or not isinstance(self.optimizer, RowSGD) or layout.width > layout.parameter_width:
            return layout.width, layout.parameter_width
        whole = Spread(1, (layout.width,)).length
        return whole, whole

    def fill(self, given: TrainingRows) -> None:
        """Copy a row, and what its training needs to know, into this memory."""
        self.row.copy_(given.rows)
        self.part.copy_(given.parts)
        self.key.copy_(given.keys)
        self.state.zero_() if given.state is None else self.state.copy_(given.state)
        if isinstance(self.rate, Tensor) and self.rate.is_cuda:
            self.rate.copy_(given.lr)
        else:
            self.rate = float(given.lr[0])

    def train(self, gradients: Gradients) -> None:
        """Makes all steps, in place. Nothing in it waits for a GPU, so that it can be captured."""
        drawn = self.data.sampler.batches(self.part, self.key, self.local_steps)
        for step in range(self.local_steps):
            found = gradients(*self.data.batch(drawn, self.key, step), step)
            with torch.no_grad():
                self.optimizer.step_alone(self.weights, found, self.states[0], self.rate)

    def capture(self, gradients: Gradients) -> None:
        try:
            self.graph, _ = recorded(lambda: self.train(gradients))
            torch.cuda.empty_cache()  # what the warm-up took: gigabytes that no later training asks for
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.graphs = False
            say_that_none_works(error)
