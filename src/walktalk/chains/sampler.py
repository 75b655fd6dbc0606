"""Drawing the next node of a chain in constant time.

One node at a time: Vose's alias method (1991). Each row is split into as many equal parts as it has entries, and each
part holds at most two of them; so one random number chooses a part and one of its two. A row's table is made when the
row is first needed. Many nodes at a time: one sorted search over the cumulative rows.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from walktalk.core.arrays import Ints
from walktalk.core.lazy import later

if TYPE_CHECKING:
    from scipy import sparse
    from scipy.sparse import csr_array
else:
    sparse = later("scipy.sparse")

Row = tuple[int, list[float], list[int], list[int]]  # parts, where each is cut, below the cut, above the cut


class Sampler:
    """The next node from a node."""

    def __init__(self, matrix: csr_array[Any]) -> None:
        self._matrix = matrix
        self._rows: list[Row | None] = [None] * matrix.shape[0]
        self._cumulative: npt.NDArray[np.float64] | None = None

    def next(self, node: int, random: Random) -> int:
        """Where a walk at this node goes; one random number a call."""
        parts, cut, low, high = self._rows[node] or self._table(node)
        x = random.random() * parts
        part = int(x)
        return low[part] if x - part < cut[part] else high[part]

    def next_many(self, nodes: npt.ArrayLike, rng: np.random.Generator) -> Ints:
        """Where many walks go, each independent of the others."""
        at = np.asarray(nodes, dtype=np.int64)
        matrix = self._matrix
        if self._cumulative is None:
            self._cumulative = _cumulative(matrix)
        places = np.searchsorted(self._cumulative, at + rng.random(at.shape), side="right")
        inside = np.clip(places, matrix.indptr[at], matrix.indptr[at + 1] - 1)
        return np.asarray(matrix.indices[inside], dtype=np.int64)

    def _table(self, node: int) -> Row:
        start, stop = self._matrix.indptr[node], self._matrix.indptr[node + 1]
        row = _vose(self._matrix.indices[start:stop].tolist(), self._matrix.data[start:stop].tolist())
        self._rows[node] = row
        return row


def _vose(targets: list[int], weights: list[float]) -> Row:
    """The alias table of one row."""
    parts, total = len(targets), sum(weights)
    scaled = [weight * parts / total for weight in weights]
    cut, high = [1.0] * parts, list(targets)
    small = [k for k in range(parts) if scaled[k] < 1]
    large = [k for k in range(parts) if scaled[k] >= 1]
    while small and large:
        less, more = small.pop(), large.pop()
        cut[less], high[less] = scaled[less], targets[more]
        scaled[more] -= 1 - scaled[less]
        (small if scaled[more] < 1 else large).append(more)
    return parts, cut, list(targets), high


def _cumulative(matrix: csr_array[Any]) -> npt.NDArray[np.float64]:
    """Row number plus the running sum within the row: increasing over the whole matrix."""
    lengths = np.diff(matrix.indptr)
    running = np.cumsum(matrix.data)
    before = np.concatenate([[0.0], running])[matrix.indptr[:-1]]
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return np.asarray(np.minimum(rows + running - np.repeat(before, lengths), rows + 1.0), dtype=np.float64)
