"""One root seed; every source of randomness is a child of it, by name.

A child depends on the root and on its own path of names only, never on how many other children were drawn before it,
so adding an algorithm or a repetition to a study changes nothing in the others.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Seed:
    """A node in the tree of seeds: the root and the names that lead here."""

    root: int
    path: tuple[str, ...] = ()

    def child(self, *names: object) -> Seed:
        """The seed below this one under these names."""
        return Seed(self.root, (*self.path, *(str(name) for name in names)))

    @property
    def integer(self) -> int:
        """A 63-bit integer, the same for the same root and path on every machine."""
        text = "\x1f".join((str(self.root), *self.path))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1

    def numpy(self) -> np.random.Generator:
        """A NumPy generator: for whole arrays."""
        return np.random.default_rng(self.integer)

    def python(self) -> random.Random:
        """A Python generator: for one number at a time, which NumPy is slow at."""
        return random.Random(self.integer)


def as_seed(seed: int | Seed) -> Seed:
    """A `Seed` from what a person may write."""
    return seed if isinstance(seed, Seed) else Seed(int(seed))
