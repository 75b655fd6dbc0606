"""Which forms of training are possible for a model, an optimizer and data, and which of them is the fastest."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from walktalk.learning import kernels
from walktalk.learning.arithmetic import Arithmetic
from walktalk.learning.optimizers import Clipped, RowOptimizer, RowSGD, RowTorch
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
from walktalk.learning.training.by_row import RowTraining
from walktalk.learning.training.chain import ChainTraining
from walktalk.learning.training.graphs import LARGE_ROW, GraphedTraining, InPlaceTraining
from walktalk.learning.training.rows import TrainingData, TrainingForm, TrainingRows
from walktalk.learning.training.stacked import SameBitsTraining, StackedTraining


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
