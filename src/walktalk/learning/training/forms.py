"""Which forms of training are possible for a model, an optimizer and data, and which of them is the fastest."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from walktalk.learning import kernels
from walktalk.learning.arithmetic import Arithmetic
from walktalk.learning.memory import keep_freed_memory
from walktalk.learning.optimizers import Clipped, RowOptimizer, RowSGD, RowTorch, Spread
from walktalk.learning.samples import Column
from walktalk.learning.stacked import (
    ChainModel,
    RowByRowLoss,
    SequentialModel,
    SingleRowModel,
    StackedModel,
    TracedModel,
    active_dropouts,
)
from walktalk.learning.stacked.model import Gradients
from walktalk.learning.training.chain import ChainTraining
from walktalk.learning.training.graphs import LARGE_ROW, GraphedTraining, InPlaceTraining, recorded, say_that_none_works
from walktalk.learning.training.rows import (
    SameBitsTraining,
    StackedTraining,
    TrainedRows,
    TrainingData,
    TrainingForm,
    TrainingRows,
)

# -- Training of large models, one row at a time, in memory that is laid out once and used for every training ---------
# On a CPU a row of a hundred megabytes that is got anew, filled and given back costs a page fault for every four
# kilobytes. With Adam that was ten such rows a training: as long as forward and backward pass together. On a GPU what
# counts are the passes over that memory, and thousands of small kernels, so all steps are one CUDA graph.


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


# -- Which forms of training are possible for a model, an optimizer and data, and which of them is the fastest --------


@dataclass
class TrainingForms:
    """The forms of training that are possible here; None for one that is not."""

    stacked: StackedTraining  # any wave
    same_bits: SameBitsTraining | None = None  # the same, where a row alone may have other bits
    graphed: GraphedTraining | None = None  # whole trainings as CUDA graphs
    chain: ChainTraining | None = None  # small perceptrons on a CPU
    by_row: RowTraining | None = None  # one row after the other, in memory that is used again
    in_place: InPlaceTraining | None = None  # rows of a matrix on a GPU where they lie

    def fastest(self, given: TrainingRows) -> TrainingForm:
        """The fastest form that can do what these rows ask for."""
        if given.extras is not None:
            return self.graphed or self.same_bits or self.stacked
        return self.graphed or self.chain or self.by_row or self.same_bits or self.stacked


def possible_forms(
    stacked: StackedTraining, arithmetic: Arithmetic, device: torch.device, has_waves: bool
) -> TrainingForms:
    """All forms that are possible for what `stacked` trains.

    Args:
        stacked: the form that always is.
        arithmetic: how numbers are computed.
        device: where the rows are.
        has_waves: whether more rows than one are ever trained at once.
    """
    model, optimizer, data, steps = stacked.model, stacked.optimizer, stacked.data, stacked.local_steps
    on_cpu, graphs = device.type == "cpu", arithmetic.uses_graphs(device)
    if isinstance(model, SequentialModel):
        graphs = graphs and not model.draws and not waits(model, optimizer, data)
        return TrainingForms(stacked, by_row=RowTraining(model, optimizer, data, steps, graphs))
    if on_cpu and isinstance(model, ChainModel) and fits_chain(data, arithmetic):
        return TrainingForms(stacked, chain=ChainTraining(model, optimizer, data, steps))
    single = single_row_form(stacked) if on_cpu else None
    # What is read batch by batch is not read to try something out.
    forms = TrainingForms(stacked, SameBitsTraining(stacked, single, on_cpu and has_waves and not data.is_read))
    if graphs and not waits(model, optimizer, data):
        forms.graphed = GraphedTraining(stacked)
        if model.layout.parameter_width >= LARGE_ROW and kernels.is_possible() and isinstance(optimizer, RowSGD):
            forms.in_place = InPlaceTraining(stacked, optimizer)
    return forms


def waits(model: StackedModel, optimizer: RowOptimizer, data: TrainingData) -> bool:
    """Whether a training waits for the device, for all that is known."""
    inner = optimizer.inner if isinstance(optimizer, Clipped) else optimizer
    return data.is_read or isinstance(inner, RowTorch) or isinstance(model.loss, RowByRowLoss)


def fits_chain(data: TrainingData, arithmetic: Arithmetic) -> bool:
    """Whether a chain of layers may be trained by `ChainTraining`: in 32 bits, on plain samples in memory."""
    in_memory = not isinstance(data.inputs, Column) and not isinstance(data.targets, Column)
    return in_memory and data.augment is None and arithmetic.precision != "bf16" and data.inputs.dim() >= 2


def single_row_form(stacked: StackedTraining) -> RowTraining | None:
    """On a CPU, what trains a wave of one: torch's own layers have less to do than stacked ones.

    Not in transformers, where ours are faster than torch's even for one model, and not where something is dropped
    inside of another layer: a row has the same masks in every wave.
    """
    model = stacked.model
    if type(model) is not TracedModel or model.traced.attends:
        return None
    if any(type(part) is not nn.Dropout for part, _ in active_dropouts(model.module)):
        return None
    one = SingleRowModel(model.module, model.loss, model.with_buffers)
    one.arithmetic = model.arithmetic
    return RowTraining(one, stacked.optimizer, stacked.data, stacked.local_steps)
