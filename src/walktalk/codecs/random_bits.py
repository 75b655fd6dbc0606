"""Random numbers by counter: a hash of a key and a place, so they need no state and are the same on every device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walktalk.lazy import later

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = later("torch")

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number
_FIRST = -4658895280553007687  # 0xBF58476D1CE4E5B9
_SECOND = -7723592293110705685  # 0x94D049BB133111EB


def hashed(keys: Tensor, counters: Tensor, bits: int = 31) -> Tensor:
    """31 random bits (or all 64) for every pair of key and counter (splitmix64); shapes are broadcast."""
    z = keys + (counters + 1) * _GOLDEN  # int64 arithmetic wraps around, as intended
    z = (z ^ _shift(z, 30)) * _FIRST
    z = (z ^ _shift(z, 27)) * _SECOND
    z = z ^ _shift(z, 31)
    return z if bits == 64 else _shift(z, 33)


def hashed_number(key: int, counter: int) -> int:
    """The same 31 bits for one key and one counter."""
    z = (key + (counter + 1) * _GOLDEN) % 2**64
    z = (z ^ (z >> 30)) * _FIRST % 2**64
    z = (z ^ (z >> 27)) * _SECOND % 2**64
    return (z ^ (z >> 31)) >> 33


def uniform(keys: Tensor, count: int) -> Tensor:
    """For each key so many float32 numbers in [0, 1)."""
    draws = hashed(keys.view(-1, 1), torch.arange(count, device=keys.device).view(1, -1))
    return (draws >> 7).float() * 2.0**-24  # 24 bits: all that a float32 below 1 holds


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical shift to the right: torch's own keeps the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
