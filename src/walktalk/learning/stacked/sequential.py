"""Models that are too large for a wave, or that nothing else can stack: row after row, with plain autograd.

A model of a hundred million parameters fills a device alone, so stacking would gain nothing and cost memory. The
module's own tensors are pointed at a row's numbers, one row at a time; whatever `forward` does, it does as always.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from walktalk.codecs import hashed
from walktalk.errors import ModelError
from walktalk.learning.stacked.model import Gradients, StackedModel
from walktalk.learning.task import Loss

DRAWN_FOR_MODULES = 7919  # the counter of a row's key from which torch's own random numbers are seeded


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
        self.worker = copy.deepcopy(module)  # the module itself keeps its weights: runs may start from them
        self.draws = True  # whether training draws random numbers; if not, no seed has to be set, and nothing waits

    def wave(self, weights: Tensor, buffers: Tensor, keys: Tensor) -> Gradients:
        layout, rows = self.layout, len(keys)
        everything = torch.empty_like(weights)
        sources, places = layout.dense_views(weights, rows), layout.dense_views(everything, rows)
        statistics = layout.views(buffers, layout.buffers, layout.parameter_width)

        def gradients(inputs: Tensor, targets: Tensor, step: int) -> Tensor:
            self.worker.train()
            seeds = hashed(keys, torch.full_like(keys, DRAWN_FOR_MODULES + step)).tolist() if self.draws else []
            for r in range(rows):
                self.point_at(sources, statistics, r)
                with seeded(seeds[r], weights.device) if self.draws else nullcontext():
                    found = self.backward(inputs[r], targets[r])
                for name in [name for name, gradient in found.items() if gradient is None]:
                    places[name][r].zero_()
                there = {name: gradient for name, gradient in found.items() if gradient is not None}
                torch._foreach_copy_([places[name][r] for name in there], list(there.values()))
                self.keep_buffers(statistics, r)
            return everything

        return gradients

    def backward(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor | None]:
        named = dict(self.worker.named_parameters())
        wanted = [named[entry.name] for entry in self.layout.parameters]
        with torch.enable_grad():
            with self.arithmetic.forward(inputs.device):
                outputs = self.worker(inputs)
            loss = self.loss(outputs.float(), targets)
            found = torch.autograd.grad(loss, wanted, allow_unused=True)
        return {entry.name: gradient for entry, gradient in zip(self.layout.parameters, found, strict=True)}

    def outputs(self, rows: Tensor, inputs: Tensor) -> Tensor:
        self.worker.eval()
        if not self.with_buffers:
            for part in self.worker.modules():
                part.train(isinstance(part, nn.modules.batchnorm._BatchNorm))
        layout = self.layout
        parameters, buffers = layout.views(rows, layout.parameters), layout.views(rows, layout.buffers)
        results = []
        with torch.no_grad(), self.arithmetic.forward(rows.device):
            for r in range(len(rows)):
                self.point_at(parameters, buffers, r)
                results.append(self.worker(inputs).float())
        return torch.stack(results)

    def point_at(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], row: int) -> None:
        """Let the worker's tensors look at a row's numbers; nothing is copied but buffers, which are small."""
        for name, parameter in self.worker.named_parameters():
            if name in parameters:
                parameter.data = parameters[name][row]
        with torch.no_grad():
            for name, buffer in self.worker.named_buffers():
                if name in buffers:
                    buffer.copy_(buffers[name][row])

    def keep_buffers(self, buffers: dict[str, Tensor], row: int) -> None:
        with torch.no_grad():
            for name, buffer in self.worker.named_buffers():
                if name in buffers:
                    buffers[name][row].copy_(buffer)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """torch's random numbers from this seed inside, and as they were outside."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
