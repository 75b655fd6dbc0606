"""Several columns of inputs as one tensor, and back.

Everything that draws, stacks and moves samples then needs to know of one tensor only. Each column's bytes are laid
side by side, in words of eight bytes, so that nothing is lost or changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

WORD = 8  # bytes


class Field(NamedTuple):
    """Where one column lies."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]  # of one sample
    start: int  # in words
    end: int


class Packing:
    """How columns lie side by side."""

    def __init__(self, columns: Mapping[str, Tensor]) -> None:
        self.fields: list[Field] = []
        at = 0
        for name, column in columns.items():
            size = column[0].numel() * column.element_size()
            end = at + -(-size // WORD)
            self.fields.append(Field(name, column.dtype, tuple(column.shape[1:]), at, end))
            at = end
        self.words = at

    def pack(self, columns: Mapping[str, Tensor]) -> Tensor:
        """All columns of some samples as one tensor [samples, words]."""
        samples = len(next(iter(columns.values())))
        packed = torch.zeros(samples, self.words, dtype=torch.int64)
        for field in self.fields:
            flat = columns[field.name].to(field.dtype).reshape(samples, -1).contiguous()
            packed[:, field.start : field.end].view(field.dtype)[:, : flat.shape[1]] = flat
        return packed

    def unpack(self, packed: Tensor) -> dict[str, Tensor]:
        """The columns again."""
        columns = {}
        for field in self.fields:
            flat = packed[:, field.start : field.end].view(field.dtype)
            size = torch.Size(field.shape).numel()
            columns[field.name] = flat[:, :size].reshape(len(packed), *field.shape)
        return columns
