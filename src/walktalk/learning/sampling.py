"""Which samples are in a batch: a hash of the training's key, the step and the place, and of nothing else.

Samples are drawn with replacement, uniformly over the node's data, so a node may have fewer samples than a batch. The
draw is counter-based (splitmix64), on the device: it needs no state, and a training gets the same batches alone, in a
wide wave, or when it is done again on another machine.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from walktalk.codecs import hashed

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
    """The same with all 64 bits."""
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
