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

from walktalk.transforms.codecs import hashed, hashed_number

Batch: TypeAlias = tuple[Tensor, Tensor]  # inputs and targets
ReadBatch: TypeAlias = Callable[[Sequence[int]], Batch]  # numbers of samples -> those samples, in that order

TRIED = 64  # samples that a model is tried on, where not all are in memory
DRAWN_FOR_SAMPLES = 104_729  # the counter of a training's key from which its first batch's seed is hashed
MEASURED = 0  # the seed of samples that are read for a measurement


@contextmanager
def all_seeded(seed: int) -> Iterator[None]:
    """Seeds torch, numpy and Python, from which a person's transform may draw, and leaves them as they were."""
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


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seeds torch's random numbers of this device and of the CPU inside, and leaves them as they were.

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
        """Reads samples for a measurement: with the same draws every time."""
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
        """Inputs and targets as two columns."""
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
        """Reads these samples now; places may have any shape."""
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
        """A column of the same samples, which go to a device once they are read."""
        return Column(self.reader, self.which, self.numbers, torch.device(device))

    def split(self, samples: int) -> Iterator[Tensor]:
        """The column piece by piece."""
        for start in range(0, len(self), samples):
            yield self[start : start + samples]

    def dim(self) -> int:
        return len(self.shape)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point


Samples: TypeAlias = Tensor | Column


def only(samples: Samples, places: Tensor | np.ndarray) -> Samples:
    """Some samples: a copy of those in memory; of others just which they are."""
    return samples.only(places) if isinstance(samples, Column) else samples[places]


def bytes_in_memory(samples: Samples) -> int:
    """How many bytes samples take in memory: nothing where they are read batch by batch."""
    return 0 if isinstance(samples, Column) else samples.numel() * samples.element_size()


def pieces(samples: Samples, at_once: int) -> Iterator[Tensor]:
    """Goes through all samples piece by piece."""
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


# Which samples are in a batch: a hash of the training's key, the step and the place, and of nothing else.
#
# Samples are drawn with replacement, uniformly over the node's data, so a node may have fewer samples than a batch. The
# draw is counter-based (splitmix64), on the device: it needs no state, and a training gets the same batches alone, in a
# wide wave, or when it is done again on another machine.

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number
_FIRST = -4658895280553007687  # 0xBF58476D1CE4E5B9
_SECOND = -7723592293110705685  # 0x94D049BB133111EB
_27, _30, _31, _33 = (np.uint64(bits) for bits in (27, 30, 31, 33))
_FIRST_64, _SECOND_64 = (np.uint64(number % 2**64) for number in (_FIRST, _SECOND))


def counted(count: int) -> np.ndarray:
    """(counter + 1) · golden of the counters from 0: the same for every key."""
    return np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN % 2**64)


def hashed_by_numpy(places: np.ndarray) -> np.ndarray:
    """`hashed`, in place, from keys + (counters + 1) · golden as uint64: a third of the time for a wave on a CPU."""
    np.right_shift(all_bits_by_numpy(places), _33, out=places)
    return places


def all_bits_by_numpy(places: np.ndarray) -> np.ndarray:
    """Hashes as `hashed_by_numpy`, with all 64 bits."""
    other = places >> _30
    np.bitwise_xor(places, other, out=places)
    places *= _FIRST_64
    np.right_shift(places, _27, out=other)
    np.bitwise_xor(places, other, out=places)
    places *= _SECOND_64
    np.right_shift(places, _31, out=other)
    np.bitwise_xor(places, other, out=places)
    return places


class Sampler:
    """Draws batches from the data of each node; part V is everybody's data together."""

    def __init__(self, parts: list[np.ndarray], batch_size: int, device: torch.device) -> None:
        everything = np.concatenate(parts)
        sizes = [len(part) for part in parts]
        starts = np.concatenate(([0], np.cumsum(sizes)))[: len(parts)]
        self.samples = torch.from_numpy(everything.astype(np.int64)).to(device)
        self.starts = torch.tensor([*starts, 0], device=device)
        self.sizes = torch.tensor([*sizes, len(everything)], device=device)
        self.batch_size = batch_size
        on_cpu = device.type == "cpu"
        self.arrays = tuple(t.numpy() for t in (self.samples, self.starts, self.sizes)) if on_cpu else ()
        self.counted: dict[int, np.ndarray] = {}  # steps -> `_counted`

    def batches(self, parts: Tensor, keys: Tensor, steps: int) -> Tensor:
        """Indices into the samples, [steps, rows, batch]."""
        if keys.device.type == "cpu":
            return self._batches_by_numpy(parts.numpy(), keys.numpy(), steps)
        counters = torch.arange(steps * self.batch_size, device=keys.device).view(steps, 1, self.batch_size)
        draws = hashed(keys.view(1, -1, 1), counters)
        places = self.starts[parts].view(1, -1, 1) + draws % self.sizes[parts].view(1, -1, 1)
        return self.samples[places]

    def _batches_by_numpy(self, parts: np.ndarray, keys: np.ndarray, steps: int) -> Tensor:
        samples, starts, sizes = self.arrays
        if len(keys) == 1:  # models that are trained one by one: numbers in place of arrays take two thirds of the time
            key, part = keys.view(np.uint64)[0], parts[0]
            places = hashed_by_numpy(self._counted(steps) + key).view(np.int64)
            places %= sizes[part]
            places += starts[part]
        else:
            places = hashed_by_numpy(self._counted(steps) + keys.view(np.uint64).reshape(1, -1, 1)).view(np.int64)
            places %= sizes[parts].reshape(1, -1, 1)
            places += starts[parts].reshape(1, -1, 1)
        return torch.from_numpy(samples.take(places))

    def _counted(self, steps: int) -> np.ndarray:
        """(counters + 1) · golden: the same for every wave."""
        if steps not in self.counted:
            self.counted[steps] = counted(steps * self.batch_size).reshape(steps, 1, self.batch_size)
        return self.counted[steps]
