"""A model as one flat row of numbers: first its parameters, then the float buffers that travel with it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from walktalk.learning.frozen import sharing_copy, still_parts


@dataclass(frozen=True)
class Entry:
    """One tensor of the model, and where it lies in the row."""

    name: str
    shape: torch.Size
    start: int
    end: int


class RowLayout:
    """Where every parameter and float buffer of a module lies.

    Buffers that are not floats (BatchNorm's count of batches) or not kept by the module itself (tables of angles in a
    transformer) do not travel; what is frozen, parameters and statistics, is left out too (`learning.frozen`). They
    stay as the template has them.
    """

    def __init__(self, module: nn.Module, with_buffers: bool = True) -> None:
        self.parameters: list[Entry] = []
        self.buffers: list[Entry] = []
        at = 0
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                self.parameters.append(Entry(name, parameter.shape, at, at + parameter.numel()))
                at += parameter.numel()
        self.parameter_width = at
        kept, still = set(module.state_dict()) if with_buffers else set(), still_parts(module)
        for name, buffer in module.named_buffers():
            if buffer.is_floating_point() and name in kept and name.rpartition(".")[0] not in still:
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

    def spread_out(self, rows: Tensor) -> Tensor:
        """Parameters of rows [W, P] as one vector, parameter after parameter: each then is a dense [W, *shape].

        Rows are how models are stored and mixed; this is how they are trained. With gaps of a whole row between the
        weights of two models, a batched product takes up to three times as long.
        """
        return torch.cat([rows[:, e.start : e.end].reshape(-1) for e in self.parameters])

    def gather(self, vector: Tensor, rows: int) -> Tensor:
        """Back from one vector to rows [W, P]."""
        return torch.cat([part.reshape(rows, -1) for part in self.dense_views(vector, rows).values()], dim=1)

    def dense_views(self, vector: Tensor, rows: int) -> dict[str, Tensor]:
        """The stacked parameters [W, *shape] inside such a vector."""
        return {e.name: vector[rows * e.start : rows * e.end].view(rows, *e.shape) for e in self.parameters}

    def module(self, template: nn.Module, row: Tensor) -> nn.Module:
        """A plain module with a row's numbers; what is frozen is the template's own memory."""
        module = sharing_copy(template)
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        with torch.no_grad():
            for entry in (*self.parameters, *self.buffers):
                tensors[entry.name].copy_(row[entry.start : entry.end].view(entry.shape))
        return module
