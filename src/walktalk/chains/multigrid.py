"""Smoothed-aggregation multigrid for the Laplacian of a graph (Vaněk, Mandel, Brezina, 1996), in array operations.

Solving with a Laplacian is slow because smooth errors travel one edge at a time. So nodes are gathered into aggregates
of neighbours, the aggregates are the nodes of a smaller graph, and so on down to a few hundred, where a dense inverse
finishes. One pass down and up the levels is a symmetric, positive map from residual to correction: the preconditioner
of the conjugate gradients in `solver`. On a million-node torus it takes about twenty passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from walktalk.lazy import later

if TYPE_CHECKING:
    from scipy import sparse
    from scipy.sparse import csr_array
else:
    sparse = later("scipy.sparse")

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COARSEST = 1500  # nodes; a dense inverse of this size takes half a second
LEAST_COARSENING = 0.8  # a level that keeps more than this share of nodes, or of entries, is not worth having


@dataclass(frozen=True)
class _Level:
    matrix: csr_array[Any]
    prolong: csr_array[Any]  # from the next, smaller level to this one
    restrict: csr_array[Any]  # its transpose
    damping: Floats  # of the Jacobi smoother: 4/3 over the spectral radius of D⁻¹A, over the diagonal


@dataclass(frozen=True)
class Multigrid:
    """The levels, finest first, and the inverse on the coarsest."""

    levels: tuple[_Level, ...]
    inverse: Floats

    def __call__(self, residual: Floats) -> Floats:
        """An approximate solution for this right-hand side (a vector, or several as columns)."""
        return self._cycle(residual, 0)

    def _cycle(self, right: Floats, depth: int) -> Floats:
        if depth == len(self.levels):
            return self.inverse @ right
        level = self.levels[depth]
        damping = level.damping if right.ndim == 1 else level.damping[:, None]
        x: Floats = damping * right
        x += level.prolong @ self._cycle(level.restrict @ (right - level.matrix @ x), depth + 1)
        x += damping * (right - level.matrix @ x)
        return x


def multigrid(laplacian: csr_array[Any]) -> Multigrid | None:
    """The hierarchy for a Laplacian with a full diagonal, or None where the graph does not coarsen (an expander)."""
    rng = np.random.default_rng(0)  # only the speed depends on it
    levels: list[_Level] = []
    matrix = laplacian
    while matrix.shape[0] > COARSEST:
        level, coarse = _coarsen(matrix, rng)
        if coarse.shape[0] > LEAST_COARSENING * matrix.shape[0]:
            return None
        levels.append(level)
        matrix = coarse
    return Multigrid(tuple(levels), np.linalg.pinv(matrix.toarray(), hermitian=True))


def _coarsen(matrix: csr_array[Any], rng: np.random.Generator) -> tuple[_Level, csr_array[Any]]:
    groups, count = _aggregates(matrix, rng)
    nodes = matrix.shape[0]
    diagonal = matrix.diagonal()
    damping = 4 / 3 / _radius(matrix, diagonal, rng) / diagonal
    plain = sparse.csr_array((np.ones(nodes), groups, np.arange(nodes + 1)), shape=(nodes, count))
    smooth = sparse.csr_array(plain - sparse.diags_array(damping) @ (matrix @ plain))
    level = _Level(matrix, smooth, sparse.csr_array(smooth.T), damping)
    coarse = sparse.csr_array(level.restrict @ (matrix @ smooth))
    if coarse.nnz > LEAST_COARSENING * matrix.nnz:  # smoothing fills in: do without it on this level
        level = _Level(matrix, plain, sparse.csr_array(plain.T), damping)
        coarse = sparse.csr_array(level.restrict @ (matrix @ plain))
    return level, coarse


def _radius(matrix: csr_array[Any], diagonal: Floats, rng: np.random.Generator) -> float:
    """The spectral radius of D⁻¹A: a few power steps with a margin, at most the row-sum bound."""
    v = rng.standard_normal(matrix.shape[0])
    for _ in range(8):
        v /= np.linalg.norm(v)
        v = matrix @ v / diagonal
    rows = np.add.reduceat(np.abs(matrix.data), matrix.indptr[:-1]) / diagonal
    return float(min(1.1 * np.linalg.norm(v), rows.max()))


def _aggregates(matrix: csr_array[Any], rng: np.random.Generator) -> tuple[Ints, int]:
    """Every node's group: roots are a maximal set with no two within distance two; the others join a near root."""
    indices, starts = matrix.indices, matrix.indptr[:-1]

    def highest_near(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.asarray(np.maximum.reduceat(values[indices], starts))  # the diagonal is there: itself included

    nodes = matrix.shape[0]
    luck = rng.permutation(nodes) + 1
    open_, roots = np.ones(nodes, dtype=bool), np.zeros(nodes, dtype=bool)
    while open_.any():
        contest = np.where(open_, luck, 0)
        roots |= open_ & (highest_near(highest_near(contest)) == luck)
        open_ &= ~highest_near(highest_near(roots))
    groups = np.where(roots, np.cumsum(roots) - 1, -1)
    for _ in range(2):
        groups = np.where(groups < 0, highest_near(groups), groups)
    return groups.astype(np.int64), int(roots.sum())
