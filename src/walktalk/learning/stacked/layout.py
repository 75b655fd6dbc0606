"""A model as one flat row of numbers: first its parameters, then the float buffers that travel with it."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Entry:
    """One tensor of the model, and where it lies in the row."""

    name: str
    shape: torch.Size
    start: int
    end: int


class RowLayout:
    """Where every parameter and float buffer of a module lies.

    Buffers that are not floats (such as BatchNorm's count of batches) do not travel; parameters that do not require a
    gradient are left out too and stay as the template has them.
    """

    def __init__(self, module: nn.Module) -> None:
        self.parameters: list[Entry] = []
        self.buffers: list[Entry] = []
        at = 0
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                self.parameters.append(Entry(name, parameter.shape, at, at + parameter.numel()))
                at += parameter.numel()
        self.parameter_width = at
        for name, buffer in module.named_buffers():
            if buffer.is_floating_point():
                self.buffers.append(Entry(name, buffer.shape, at, at + buffer.numel()))
                at += buffer.numel()
        self.width = at

    def row(self, module: nn.Module) -> Tensor:
        """The module's numbers as a row."""
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        flat = [tensors[entry.name].detach().float().reshape(-1) for entry in (*self.parameters, *self.buffers)]
        return torch.cat(flat) if flat else torch.zeros(0)

    def views(self, rows: Tensor, entries: list[Entry], offset: int = 0) -> dict[str, Tensor]:
        """Stacked tensors [W, *shape] that look into the rows; nothing is copied."""
        return {e.name: rows[:, e.start - offset : e.end - offset].view(len(rows), *e.shape) for e in entries}

    def module(self, template: nn.Module, row: Tensor) -> nn.Module:
        """A plain module with a row's numbers."""
        module = copy.deepcopy(template)
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        with torch.no_grad():
            for entry in (*self.parameters, *self.buffers):
                tensors[entry.name].copy_(row[entry.start : entry.end].view(entry.shape))
        return module
