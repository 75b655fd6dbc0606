"""Models that are too large for a wave, or that nothing else can stack: row after row, with plain autograd.

A model of a hundred million parameters fills a device alone, so stacking would gain nothing and cost memory. The
module's own tensors are pointed at a row's numbers, one row at a time; whatever `forward` does, it does as always.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from walktalk.codecs import hashed, hashed_number
from walktalk.errors import ModelError
from walktalk.learning.frozen import sharing_copy, still_parts, to_training
from walktalk.learning.stacked.backwards import gradients_of_loss
from walktalk.learning.stacked.model import Gradients, StackedModel
from walktalk.learning.task import Loss

DRAWN_FOR_MODULES = 7919  # the counter of a row's key from which torch's own random numbers are seeded
DRAWN_FOR_MEASURING = 0  # the seed of a measurement, the same for all: models are compared with the same draws


class SequentialModel(StackedModel):
    """Any module at all, one row at a time."""

    rows_at_once = 1
    samples_at_once = 64  # large models have large activations

    def __init__(self, module: nn.Module, loss: Loss, with_buffers: bool = True) -> None:
        super().__init__(module, loss, with_buffers)
        for name, part in module.named_modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.track_running_stats and part.momentum is None:
                raise ModelError(
                    f"{name or 'the model'}: BatchNorm with a cumulative average (momentum=None) counts its batches, "
                    "and that count does not travel with a model; give it a momentum, or use GroupNorm"
                )
        self.worker = sharing_copy(module)  # the module itself keeps its weights: runs may start from them
        named = dict(self.worker.named_parameters())  # looked up once: a walk through the layers takes its time
        self.wanted = [named[entry.name] for entry in self.layout.parameters]
        self.statistics = dict(self.worker.named_buffers())
        self.pointed: tuple[dict[str, Tensor], int] | None = None  # where the worker's parameters look
        self.pictures = any(isinstance(part, nn.Conv2d) for part in module.modules())
        self.small_up_to = 0  # samples of a batch up to which oneDNN is not worth it (`small_convolutions`)
        self.heavy_up_to = 0  # and up to which weights count for more than images (`heavy_convolutions`)
        self.draws = True  # whether training draws random numbers; if not, no seed has to be set, and nothing waits
        self.draws_when_measured = True  # the same of a forward pass in evaluation, as that of a variational model

    def wave(self, weights: Tensor, buffers: Tensor, keys: Tensor) -> Gradients:
        layout, rows = self.layout, len(keys)
        everything = torch.empty_like(weights)
        everything[rows * layout.parameter_width :].zero_()
        sources = layout.dense_views(weights, rows)
        places = [[place[r] for place in layout.dense_views(everything, rows).values()] for r in range(rows)]
        statistics = layout.views(buffers, layout.buffers, layout.parameter_width)

        def gradients(inputs: Tensor, targets: Tensor, step: int) -> Tensor:
            if not self.worker.training:
                to_training(self.worker)
            seeds = seeds_of(keys, DRAWN_FOR_MODULES + step) if self.draws else []
            for r in range(rows):
                self.point_at(sources, statistics, r)
                with seeded(seeds[r], weights.device) if self.draws else nullcontext():
                    found = self.backward(inputs[r], targets[r])
                gradients_to(places[r], found)
                self.keep_buffers(statistics, r)
            return everything

        return gradients

    def backward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the parameters, in their order; None for those that have no say."""
        with torch.enable_grad():
            with self.arithmetic.forward(inputs.device):
                outputs = self.worker(self.laid_out(inputs))
            loss = self.loss(outputs.float(), targets)
            return gradients_of_loss(loss, self.wanted)

    def outputs(self, rows: Tensor, inputs: Tensor) -> Tensor:
        self.worker.eval()
        if not self.with_buffers:
            still = {id(part) for part in still_parts(self.worker).values()}
            for part in self.worker.modules():
                part.training = isinstance(part, nn.modules.batchnorm._BatchNorm) and id(part) not in still
        layout = self.layout
        parameters, buffers = layout.views(rows, layout.parameters), layout.views(rows, layout.buffers)
        results = []
        with torch.no_grad(), self.arithmetic.forward(rows.device):
            for r in range(len(rows)):
                self.point_at(parameters, buffers, r)
                with seeded(DRAWN_FOR_MEASURING, rows.device) if self.draws_when_measured else nullcontext():
                    results.append(self.worker(self.laid_out(inputs)).float())
        return torch.stack(results)

    def laid_out(self, inputs: Tensor) -> Tensor:
        """On a CPU, images with their channels last: convolutions and pools take half to two thirds of the time.

        Few and small ones are taken as they are, channels first: there oneDNN would be slower than torch. So are those
        of models with very many weights.
        """
        if not self.pictures or inputs.is_cuda or inputs.dim() != 4 or len(inputs) <= self.heavy_up_to:
            return inputs
        if len(inputs) <= self.small_up_to and self.arithmetic.precision != "bf16":
            return inputs
        if inputs.shape[1] == 1:  # the same memory in either order; torch has to be told which one is meant
            high, wide = inputs.shape[2:]
            return inputs.contiguous().as_strided(inputs.shape, (high * wide, 1, wide, 1))
        return inputs.contiguous(memory_format=torch.channels_last)

    def point_at(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], row: int) -> None:
        """Let the worker's tensors look at a row's numbers; nothing is copied but buffers, which are small."""
        if self.pointed is None or self.pointed[0] is not parameters or self.pointed[1] != row:
            for entry, parameter in zip(self.layout.parameters, self.wanted, strict=True):
                parameter.data = parameters[entry.name][row]
            self.pointed = parameters, row
        with torch.no_grad():
            for entry in self.layout.buffers:
                self.statistics[entry.name].copy_(buffers[entry.name][row])

    def keep_buffers(self, buffers: dict[str, Tensor], row: int) -> None:
        with torch.no_grad():
            for entry in self.layout.buffers:
                buffers[entry.name][row].copy_(self.statistics[entry.name])


def gradients_to(places: list[Tensor], found: tuple[Tensor | None, ...]) -> None:
    """Copy gradients to where they belong; what has none is zero."""
    there = [(place, gradient) for place, gradient in zip(places, found, strict=True) if gradient is not None]
    if len(there) < len(places):
        torch._foreach_zero_([place for place, gradient in zip(places, found, strict=True) if gradient is None])
    if there:
        torch._foreach_copy_([place for place, _ in there], [gradient for _, gradient in there])


def seeds_of(keys: Tensor, counter: int) -> list[int]:
    """A seed of 31 bits for each key; on a CPU number by number, which takes a twentieth of the time for a few."""
    if keys.is_cuda:
        seeds: list[int] = hashed(keys, torch.full_like(keys, counter)).tolist()
        return seeds
    return [hashed_number(key, counter) for key in keys.tolist()]


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """torch's random numbers of this device, and of the CPU, from this seed inside, and as they were outside.

    On a CPU its generator alone is seeded: `torch.manual_seed` would tell three more kinds of device, and where there
    is none it keeps a formatted stack for each, which takes as long as a step of a small model.
    """
    if device.type != "cpu":
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            yield
        return
    generator = torch.default_generator
    before = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(before)
