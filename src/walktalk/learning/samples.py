"""Samples in memory, or samples that stay where they are and are read batch by batch.

A `Column` stands where a tensor of all samples would: the same few operations, but nothing is read before it is asked
for, and nothing is kept but the batch that was read last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

Batch: TypeAlias = tuple[Tensor, Tensor]  # inputs and targets
ReadBatch: TypeAlias = Callable[[Sequence[int]], Batch]  # numbers of samples -> those samples, in that order

TRIED = 64  # samples that a model is tried on, where not all are in memory


class Reader:
    """Reads samples by number; remembers the last batch, since its inputs and targets are asked for one by one."""

    def __init__(self, read: ReadBatch, samples: int) -> None:
        self.read, self.samples = read, samples
        self.last: tuple[bytes, Batch] | None = None
        self.example = read([0])

    def __call__(self, numbers: np.ndarray) -> Batch:
        wanted, last = numbers.tobytes(), self.last
        if last is not None and last[0] == wanted:
            return last[1]
        batch = self.read(numbers.tolist())
        self.last = wanted, batch
        return batch

    def columns(self) -> tuple[Column, Column]:
        """Inputs and targets."""
        numbers = np.arange(self.samples)
        return Column(self, 0, numbers), Column(self, 1, numbers)


class Column:
    """Inputs or targets of samples that are read when they are wanted."""

    def __init__(self, reader: Reader, which: int, numbers: np.ndarray, device: torch.device | None = None) -> None:
        self.reader, self.which = reader, which
        self.numbers = numbers  # of the samples that this column is of
        self.device = device or torch.device("cpu")
        example = reader.example[which]
        self.shape = torch.Size((len(numbers), *example.shape[1:]))
        self.dtype = example.dtype

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, places: slice | Tensor | np.ndarray) -> Tensor:
        """These samples, read now; places may have any shape."""
        if isinstance(places, Tensor):
            places = places.cpu().numpy()
        chosen = self.numbers[places]
        found = self.reader(np.ascontiguousarray(chosen.reshape(-1)))[self.which].to(self.device)
        return found.view(*chosen.shape, *self.shape[1:])

    def index_select(self, dim: int, places: Tensor) -> Tensor:
        """As a tensor's, along its first dimension."""
        assert dim == 0, "samples are along the first dimension"
        return self[places]

    def only(self, places: Tensor | np.ndarray) -> Column:
        """The column of these samples alone; nothing is read."""
        places = places.cpu().numpy() if isinstance(places, Tensor) else np.asarray(places)
        return Column(self.reader, self.which, self.numbers[places], self.device)

    def to(self, device: torch.device | str) -> Column:
        """The same samples, which go to a device once they are read."""
        return Column(self.reader, self.which, self.numbers, torch.device(device))

    def split(self, samples: int) -> Iterator[Tensor]:
        """All of it, piece by piece."""
        for start in range(0, len(self), samples):
            yield self[start : start + samples]

    def dim(self) -> int:
        return len(self.shape)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point


Samples: TypeAlias = Tensor | Column


def only(samples: Samples, places: Tensor | np.ndarray) -> Samples:
    """These samples: a copy of those in memory, and of others just which they are."""
    return samples.only(places) if isinstance(samples, Column) else samples[places]


def bytes_in_memory(samples: Samples) -> int:
    """What they take there: nothing where they are read batch by batch."""
    return 0 if isinstance(samples, Column) else samples.numel() * samples.element_size()


def pieces(samples: Samples, at_once: int) -> Iterator[Tensor]:
    """All of them, piece by piece."""
    yield from samples.split(at_once)


def chosen(samples: Samples, places: Tensor) -> Tensor:
    """`samples[places]`, several times faster on a CPU: whole samples are copied at once."""
    return samples.index_select(0, places.reshape(-1)).view(*places.shape, *samples.shape[1:])


def some(samples: Samples) -> Tensor:
    """All samples, or a few where they are read batch by batch."""
    return samples[:TRIED] if isinstance(samples, Column) else samples
