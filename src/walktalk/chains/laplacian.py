"""The Laplacian L = I − P of a symmetric chain, and solving with it.

Everything about a chain that the paper's bounds need is in L and its pseudo-inverse L⁺: the spectral gap p' is L's
smallest non-zero eigenvalue, and the time to reach node v from a uniform start is V · L⁺_vv. L is made from the
off-diagonal entries of P alone, so that a gap of 1e-11 is not lost in 1 − λ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from walktalk.chains.chain import Chain
from walktalk.core.errors import ChainError
from walktalk.core.lazy import later
from walktalk.graphs import Floats, Ints

# Smoothed-aggregation multigrid for the Laplacian of a graph (Vaněk, Mandel, Brezina, 1996), in array operations.
#
# Solving with a Laplacian is slow because smooth errors travel one edge at a time. So nodes are gathered into
# aggregates of neighbours, the aggregates are the nodes of a smaller graph, and so on down to a few hundred, where a
# dense inverse finishes. One pass down and up the levels is a symmetric, positive map from residual to correction: the
# preconditioner of the conjugate gradients in `solver`. On a million-node torus it takes about twenty passes.

if TYPE_CHECKING:
    from scipy import sparse
    from scipy.sparse import csr_array
else:
    sparse = later("scipy.sparse")


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


if TYPE_CHECKING:
    from scipy import linalg, sparse
    from scipy.sparse import csr_array
else:
    linalg = later("scipy.linalg")
    sparse = later("scipy.sparse")


PLAIN_STEPS = 150  # conjugate-gradient steps before a multigrid is worth building
MOST_STEPS = 5000  # beyond any graph that we have met with a multigrid (about 40)
CHECK_EVERY = 10  # steps between looks at the error


class Laplacian:
    """L = I − P for a symmetric, irreducible chain; solves are conjugate gradients, preconditioned as needed."""

    def __init__(self, chain: Chain) -> None:
        chain.check()
        if not chain.is_symmetric():
            raise ChainError(
                f"{chain.name}: the matrix is not symmetric; large chains must be (Metropolis–Hastings is)"
            )
        self.name = chain.name
        self.matrix = _laplacian(chain.matrix)
        self.nodes = chain.nodes
        self._diagonal = self.matrix.diagonal()[:, None]
        self._slow = False  # whether plain conjugate gradients were seen to be slow here

    @cached_property
    def edges(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], Floats]:
        """Both ends and the weight of every edge, once each."""
        entries = self.matrix.tocoo()
        upper = entries.row < entries.col
        return entries.row[upper], entries.col[upper], -entries.data[upper]

    @cached_property
    def _multigrid(self) -> Multigrid | None:
        return multigrid(self.matrix)

    def _jacobi(self, residual: Floats) -> Floats:
        return np.asarray(residual / self._diagonal)

    def energy(self, x: Floats) -> float:
        """xᵀLx as a sum of squares over the edges: exact to rounding even where x is almost constant."""
        a, b, weight = self.edges
        return dot(weight, (x[a] - x[b]) ** 2)

    def quadratic(self, right: Floats, tolerance: float = 1e-6) -> float:
        """bᵀL⁺b for a b that sums to zero.

        2bᵀx − xᵀLx differs from it by the squared energy of the error in x: half the digits in x are all digits here.
        """
        x = self.solve(right, tolerance)
        return 2 * dot(right, x) - self.energy(x)

    def solve(self, right: Floats, tolerance: float = 1e-9) -> Floats:
        """x = L⁺b for a b that sums to zero, to this relative error in the energy norm. Columns are solved together."""
        b = right if right.ndim == 2 else right[:, None]
        x, done = b, False
        if not self._slow:
            x, done = _conjugate_gradients(self.matrix, b, self._jacobi, tolerance, PLAIN_STEPS)
        if not done:
            self._slow = True
            precondition = self._multigrid or self._jacobi
            x, done = _conjugate_gradients(self.matrix, b, precondition, tolerance, MOST_STEPS)
        if not done:
            raise ChainError(f"{self.name}: the linear system did not converge in {MOST_STEPS} steps")
        return x if right.ndim == 2 else x[:, 0]


_MADE: WeakKeyDictionary[Chain, Laplacian] = WeakKeyDictionary()


def laplacian_of(chain: Chain) -> Laplacian:
    """The chain's Laplacian, made once: its multigrid serves every later solve."""
    if chain not in _MADE:
        _MADE[chain] = Laplacian(chain)
    return _MADE[chain]


def _laplacian(matrix: csr_array[Any]) -> csr_array[Any]:
    moves = matrix.copy()
    moves.setdiag(0.0)
    moves.eliminate_zeros()
    made = sparse.csr_array(sparse.diags_array(np.asarray(moves.sum(axis=1))) - moves)
    made.sort_indices()
    if made.nnz < np.iinfo(np.int32).max:  # half the memory to read: products are a third faster
        made = sparse.csr_array(
            (made.data, made.indices.astype(np.int32), made.indptr.astype(np.int32)), shape=made.shape
        )
    return made


def dot(a: Floats, b: Floats) -> float:
    """The inner product, without the threads of BLAS: on a busy machine they cost more than they bring."""
    return float(np.einsum("i,i->", a, b))


def _conjugate_gradients(
    matrix: csr_array[Any], right: Floats, precondition: Callable[[Floats], Floats], tolerance: float, most: int
) -> tuple[Floats, bool]:
    """Conjugate gradients on each column, in the space of vectors that sum to zero.

    The squared energy of the error is at most rᵀMr / μ, with μ the smallest eigenvalue of the preconditioned matrix
    that the right-hand side excites; conjugate gradients estimate μ as they go (their Lanczos matrix). A residual alone
    would mislead on a graph with a small gap.
    """
    x = np.zeros_like(right)
    residual = right - right.mean(axis=0)
    z = precondition(residual)
    z -= z.mean(axis=0)
    direction, rz = z.copy(), _dots(residual, z)
    energy = np.zeros_like(rz)
    alphas: list[Floats] = []
    betas: list[Floats] = []
    for step in range(1, most + 1):
        image = matrix @ direction
        curvature = _dots(direction, image)
        alpha = np.divide(rz, curvature, out=np.zeros_like(rz), where=curvature > 0)
        energy += alpha * rz
        x += alpha * direction
        residual -= alpha * image
        z = precondition(residual)
        z -= z.mean(axis=0)
        after = _dots(residual, z)
        beta = np.divide(after, rz, out=np.zeros_like(rz), where=rz > 0)
        alphas.append(alpha)
        betas.append(beta)
        if (after <= tolerance**2 * energy).all() and (step % CHECK_EVERY == 0 or not after.any()):
            smallest = np.array([_smallest(np.array(alphas)[:, k], np.array(betas)[:, k]) for k in range(len(rz))])
            if (after <= tolerance**2 * energy * smallest).all():
                return x - x.mean(axis=0), True
        direction *= beta
        direction += z
        rz = after
    return x, False


def _dots(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->j", a, b))


def _smallest(alphas: Floats, betas: Floats) -> float:
    """The smallest eigenvalue of the tridiagonal matrix behind the steps, up to where the column was solved."""
    ended = np.flatnonzero((alphas <= 0) | (betas <= 0))
    last = int(ended[0]) + 1 if len(ended) else len(alphas)
    alphas, betas = alphas[:last], betas[: last - 1]
    if alphas[-1] <= 0:
        alphas, betas = alphas[:-1], betas[:-1]
    if not len(alphas):
        return 1.0
    diagonal = 1 / alphas
    diagonal[1:] += betas / alphas[:-1]
    return float(
        linalg.eigvalsh_tridiagonal(diagonal, np.sqrt(betas) / alphas[:-1], select="i", select_range=(0, 0))[0]
    )
