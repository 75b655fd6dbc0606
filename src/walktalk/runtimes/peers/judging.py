"""Is what a neighbour sent a model of this study? Whatever is not is refused before anything is mixed with it.

A model must be finite, and its norm at most `largest` times the usual one: the median over what each neighbour sent
last, what this node trained last, and the initial model (or one whose numbers are of size 1, if that is larger), and
never less than that of the last: differences begin with zeros. Each neighbour has one voice in it, so that a few of
them cannot move it, however much they send. The right width is seen to before, by the number of bytes (`assembly`).

And no neighbour may fill this node's memory: what came from it and was not used yet is at most `HELD` models.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from statistics import median_low
from typing import Any

import torch
from torch import Tensor

from walktalk.runtimes.meaning import Encoded, Packed
from walktalk.runtimes.peers.cluster import LARGEST

HELD = 16  # models of one neighbour that wait to be used: it is a round or two ahead at most
OWN = -1  # this node's voice


class Refused(ValueError):
    """What came is no model of this study: why, in words."""


class Judge:
    """One node's."""

    def __init__(self, initial: Tensor, largest: float = LARGEST) -> None:
        """
        - `initial`: the initial model.
        - `largest`: times the usual norm that a model may have.
        """
        self.largest = largest
        self._least = max(norm_of(initial), math.sqrt(initial.numel()))
        self._own: float | None = None
        self._norms: dict[str, dict[int, float]] = {}  # by kind of message and sender
        self._came: dict[int, set[str]] = {}  # by sender: slots that it filled

    def check(self, sender: int, kind: str, packed: Packed) -> None:
        """Look at what came with a message; `Refused` where it is not to be used."""
        content: Any = packed.content
        encoded = isinstance(content, Encoded)
        model: Tensor = content.content if encoded else content
        norms = self._norms.setdefault(kind, {})
        own = [] if encoded or self._own is None else [self._own]
        usual = max(self._least, median_low([self._least, *own, *norms.values()]))
        norm = norm_of(model)
        if not math.isfinite(norm):
            raise Refused("its numbers are not finite, or enormous")
        if norm > self.largest * usual:
            raise Refused(
                f"its norm is {norm:.3g}, and {usual:.3g} is usual; at most {self.largest:g} times that is taken"
            )
        if packed.state is not None and not math.isfinite(norm_of(packed.state)):
            raise Refused("the optimizer state that came with it is not finite")
        norms[sender] = norm

    def check_room(self, sender: int, into: str, slots: Collection[str]) -> None:
        """`Refused` where too much that came from a neighbour waits to be used already."""
        waiting = self._came.setdefault(sender, set())
        if into not in waiting and len(waiting) >= HELD:
            waiting.intersection_update(slots)
            if len(waiting) >= HELD:
                raise Refused(f"{HELD} models of this neighbour wait to be used already")
        waiting.add(into)

    def trained(self, model: Tensor) -> bool:
        """This node's training has made a model: whether it is finite."""
        norm = norm_of(model)
        if math.isfinite(norm):
            self._own = norm
        return math.isfinite(norm)


def norm_of(numbers: Tensor) -> float:
    """The Euclidean norm, in one pass; not finite where a number is not, or is beyond 1e19."""
    flat = numbers.reshape(-1)
    return math.sqrt(square) if (square := float(torch.dot(flat, flat))) >= 0 else math.nan
