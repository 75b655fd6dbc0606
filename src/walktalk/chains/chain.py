"""`Chain`: a Markov chain on the nodes of a graph; the paper's matrix P (Section 3, Assumption 4).

P moves a walk in Multi-Walk (Algorithm 1, line 11) and mixes the models in gossip (Algorithm 2, line 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from walktalk.chains.sampler import Sampler
from walktalk.errors import ChainError
from walktalk.lazy import later

if TYPE_CHECKING:
    from scipy import sparse
    from scipy.sparse import csgraph, csr_array
else:
    sparse = later("scipy.sparse")
    csgraph = later("scipy.sparse.csgraph")

Floats = npt.NDArray[np.float64]
TOLERANCE = 1e-9  # how far a sum of probabilities may be from 1: rounding, never a mistake


@dataclass(frozen=True, eq=False)
class Chain:
    """Transition probabilities from each node (row) to each node (column)."""

    matrix: csr_array[Any]  # float64, V × V
    name: str = "chain"  # how it was made, e.g. "metropolis_hastings(cycle(20))"

    def __post_init__(self) -> None:
        rows, columns = self.matrix.shape
        if rows != columns:
            raise ChainError(f"{self.name}: the matrix has {rows} rows and {columns} columns; it must be square")

    @property
    def nodes(self) -> int:
        """V, the number of states."""
        return int(self.matrix.shape[0])

    def nonzeros(self, diagonal: bool = True) -> int:
        """‖P‖₀, the non-zero entries (Table 3). Nothing is sent along the diagonal: leave it out to count messages."""
        entries = int(np.count_nonzero(self.matrix.data))
        return entries if diagonal else entries - int(np.count_nonzero(self.matrix.diagonal()))

    def move_probability(self) -> float:
        """The share of steps that leave their node, under the uniform distribution: messages per walk step."""
        return float(1 - self.matrix.diagonal().mean())

    def sampler(self) -> Sampler:
        """Draws the next node."""
        return Sampler(self.matrix)

    def check(self) -> Chain:
        """This chain, or a `ChainError` naming the part of Assumption 4 that it breaks."""
        self.check_doubly_stochastic()
        components, labels = csgraph.connected_components(self.matrix, directed=True, connection="strong")
        if components > 1:
            alone = int(np.bincount(labels).min())
            raise ChainError(f"{self.name}: not irreducible, {components} classes, the smallest of {alone} nodes")
        period = self._period()
        if period != 1:
            raise ChainError(f"{self.name}: periodic, with period {period}; let it stay put sometimes (a lazy chain)")
        return self

    def check_doubly_stochastic(self) -> Chain:
        """This chain, or a `ChainError` if an entry is negative or a row or a column does not sum to 1."""
        data = self.matrix.data
        if len(data) and not (np.isfinite(data).all() and data.min() >= 0):
            raise ChainError(f"{self.name}: an entry is negative or not finite; probabilities are 0 or more")
        for axis, kind in ((1, "row"), (0, "column")):
            sums = np.asarray(self.matrix.sum(axis=axis))
            worst = int(np.abs(sums - 1).argmax())
            if abs(sums[worst] - 1) > TOLERANCE:
                raise ChainError(f"{self.name}: not doubly stochastic, {kind} {worst} sums to {sums[worst]:.6g}, not 1")
        return self

    def is_symmetric(self) -> bool:
        """Whether P = Pᵀ: reversible with the uniform distribution, as Metropolis–Hastings is."""
        difference = abs(self.matrix - self.matrix.T)
        return bool(difference.nnz == 0 or difference.max() < TOLERANCE)

    def _period(self) -> int:
        """The greatest common divisor of the lengths of all cycles; the chain is irreducible here."""
        if self.matrix.diagonal().max() > 0:
            return 1
        order, before = csgraph.breadth_first_order(self.matrix, 0, directed=True)
        level = np.zeros(self.nodes, dtype=np.int64)
        for node in order[1:]:
            level[node] = level[before[node]] + 1
        entries = self.matrix.tocoo()
        steps = np.unique(np.abs(level[entries.row] + 1 - level[entries.col]))
        return gcd(*steps.tolist())
