"""Samples in memory, or samples that stay where they are and are read batch by batch.

A `Column` stands where a tensor of all samples would: the same few operations, but nothing is read before it is asked
for, and nothing is kept but the batch that was read last.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from walktalk.codecs import hashed_number

Batch: TypeAlias = tuple[Tensor, Tensor]  # inputs and targets
ReadBatch: TypeAlias = Callable[[Sequence[int]], Batch]  # numbers of samples -> those samples, in that order

TRIED = 64  # samples that a model is tried on, where not all are in memory
DRAWN_FOR_SAMPLES = 104_729  # the counter of a training's key from which its first batch's seed is hashed
MEASURED = 0  # the seed of samples that are read for a measurement


@contextmanager
def all_seeded(seed: int) -> Iterator[None]:
    """What a person's transform may draw from, torch, numpy and Python, from this seed inside, as it was outside."""
    shared = np.random  # what such transforms still draw from
    before = torch.get_rng_state(), shared.get_state(), random.getstate()
    torch.default_generator.manual_seed(seed)
    shared.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        shared.set_state(before[1])
        random.setstate(before[2])


class Reader:
    """Reads samples by number; remembers what it read last, since inputs and targets are asked for one by one."""

    def __init__(self, read: ReadBatch, samples: int, draws: Callable[[], bool] = lambda: False) -> None:
        """
        - `read`: gives samples by number.
        - `samples`: how many there are.
        - `draws`: finds out whether they are changed at random as they are read; asked when that is wanted first.
        """
        self.read, self.samples, self.find_draws = read, samples, draws
        self.last: tuple[bytes, Batch] | None = None
        self.last_wave: tuple[bytes, list[Batch]] | None = None
        with all_seeded(MEASURED):
            self.example = read([0])

    @cached_property
    def draws(self) -> bool:
        """Whether samples are changed at random as they are read."""
        return self.find_draws()

    def __call__(self, numbers: np.ndarray) -> Batch:
        """These samples, for a measurement: with the same draws every time."""
        wanted, last = numbers.tobytes(), self.last
        if last is not None and last[0] == wanted:
            return last[1]
        with all_seeded(MEASURED) if self.draws else nullcontext():
            batch = self.read(numbers.tolist())
        self.last = wanted, batch
        return batch

    def wave(self, numbers: np.ndarray, seeds: list[int]) -> list[Batch]:
        """The batch of each row of numbers, with draws from its seed: the same alone and in every wave."""
        wanted, last = numbers.tobytes() + str(seeds).encode(), self.last_wave
        if last is not None and last[0] == wanted:
            return last[1]
        batches = []
        for row, seed in zip(numbers, seeds, strict=True):
            with all_seeded(seed):
                batches.append(self.read(row.tolist()))
        self.last_wave = wanted, batches
        return batches

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

    def for_training(self, places: Tensor, keys: Tensor, step: int) -> Tensor:
        """The samples of a wave's batches, places [W, B]; what is drawn for a row depends on its key and the step."""
        if not self.reader.draws:
            return self[places]
        seeds = [hashed_number(key, DRAWN_FOR_SAMPLES + step) for key in keys.tolist()]
        batches = self.reader.wave(self.numbers[places.cpu().numpy()], seeds)
        return torch.stack([batch[self.which] for batch in batches]).to(self.device)

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


def chosen(samples: Samples, places: Tensor, keys: Tensor, step: int) -> Tensor:
    """`samples[places]` of a wave, [W, B, …]; on a CPU several times faster, since whole samples are copied at once.

    keys, step: of the rows' trainings, for what is drawn as samples are read.
    """
    if isinstance(samples, Column):
        return samples.for_training(places, keys, step)
    return samples.index_select(0, places.reshape(-1)).view(*places.shape, *samples.shape[1:])


def some(samples: Samples) -> Tensor:
    """All samples, or a few where they are read batch by batch."""
    return samples[:TRIED] if isinstance(samples, Column) else samples
