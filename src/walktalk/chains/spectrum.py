"""Spectral gaps: p of PᵀP and p' of P (Assumption 4).

Small chains: all eigenvalues, dense. Large ones: the three-term Lanczos recurrence on P finds both ends of the spectrum
in a few hundred products where the graph mixes fast. Where the gap is tiny (a cycle, a torus) it would take as many
steps as the graph is long; one sees that early, because the estimate keeps falling as 1/steps². Then Lanczos on L⁺, by
solves with the Laplacian, takes about ten. The gap is 1/(largest eigenvalue of L⁺), never 1 − λ: a gap of 1e-11 is as
exact as one of 0.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from walktalk.chains.chain import Chain
from walktalk.chains.laplacian import Laplacian, dot, laplacian_of
from walktalk.core.arrays import Floats
from walktalk.core.errors import ChainError
from walktalk.core.lazy import later

if TYPE_CHECKING:
    from scipy import linalg
else:
    linalg = later("scipy.linalg")


DENSE = 800  # nodes; a quarter of a second
ACCURACY = 1e-7  # relative, of the gap
FIRST_LOOK = 100  # Lanczos steps; after twice as many a gap that fell below FALLING of it is still falling
FALLING = 0.8
MOST_STEPS = 10_000
BREAKDOWN = 1e-10  # a new direction this short is rounding: the space is exhausted


@dataclass(frozen=True)
class Spectrum:
    """The ends of a chain's spectrum, the eigenvalue 1 left out."""

    p: float  # gap of PᵀP: 1 − (largest modulus)²
    p_prime: float  # gap of P: 1 − second largest eigenvalue
    smallest: float  # smallest eigenvalue of P

    @property
    def second(self) -> float:
        """The second largest eigenvalue of P, the paper's 1 − p'."""
        return 1 - self.p_prime

    @property
    def modulus(self) -> float:
        """λ*, the second largest modulus: distance to the uniform distribution shrinks by it each step."""
        return max(abs(self.second), abs(self.smallest))


def spectrum(chain: Chain) -> Spectrum:
    """p and p' of a doubly stochastic chain, to about seven digits each.

    Args:
        chain: A doubly stochastic chain.
    """
    if chain.nodes == 1:
        chain.check()
        return Spectrum(1.0, 1.0, 0.0)
    if chain.nodes <= DENSE:
        return _dense(chain.check())
    laplacian = laplacian_of(chain)
    gap, smallest, settled = _lanczos(laplacian)
    if not settled:
        gap = _inverse_lanczos(laplacian)
    second = 1 - gap
    p = gap * (1 + second) if second >= abs(smallest) else (1 - abs(smallest)) * (1 + abs(smallest))
    return Spectrum(p, gap, smallest)


def _dense(chain: Chain) -> Spectrum:
    matrix = chain.matrix.toarray()
    if chain.is_symmetric():
        values = np.linalg.eigvalsh(np.diag(_moves(matrix)) - (matrix - np.diag(matrix.diagonal())))
        gap, smallest = float(values[1]), float(1 - values[-1])
        second = 1 - gap
        p = gap * (1 + second) if second >= abs(smallest) else 1 - smallest**2
        return Spectrum(float(p), gap, smallest)
    modulus = np.sort(np.abs(np.linalg.eigvals(matrix)))[::-1]
    singular = np.linalg.svd(matrix, compute_uv=False)
    return Spectrum(float(1 - singular[1] ** 2), float(1 - modulus[1]), float(-modulus[1]))


def _moves(matrix: Floats) -> Floats:
    return np.asarray((matrix - np.diag(matrix.diagonal())).sum(axis=1))


def _lanczos(laplacian: Laplacian) -> tuple[float, float, bool]:
    """The gap and the smallest eigenvalue of P, and whether the gap has settled; no vectors are kept.

    Without orthogonalisation converged eigenvalues come again in the tridiagonal matrix; the extreme ones stay right.
    """
    v = _start(laplacian.nodes)
    before, scratch, beta = np.zeros_like(v), np.empty_like(v), 0.0
    alphas: list[float] = []
    betas: list[float] = []
    first = np.inf
    for step in range(1, MOST_STEPS + 1):
        u = laplacian.matrix @ v
        u -= np.multiply(before, beta, out=scratch)
        alphas.append(dot(v, u))
        u -= np.multiply(v, alphas[-1], out=scratch)
        u -= u.mean()  # rounding brings the constant vector back in, and it grows
        beta = sqrt(dot(u, u))
        if beta < BREAKDOWN:
            return (*_ends(alphas, betas, beta)[:2], True)
        betas.append(beta)
        u /= beta
        before, v = v, u
        if step == FIRST_LOOK:
            first = _ends(alphas, betas, beta)[0]
        elif step > FIRST_LOOK and step % 50 == 0:
            gap, smallest, errors = _ends(alphas, betas, beta)
            if step == 2 * FIRST_LOOK and gap < FALLING * first:
                return gap, smallest, False
            needed = [ACCURACY * gap, ACCURACY if abs(smallest) >= 1 - gap else 1e-3]
            if errors[0] <= needed[0] and errors[1] <= needed[1]:
                return gap, smallest, True
    return gap, smallest, False


def _start(nodes: int) -> Floats:
    v = np.random.default_rng(0).standard_normal(nodes)
    v -= v.mean()
    return v / sqrt(dot(v, v))


def _ends(alphas: list[float], betas: list[float], beta: float) -> tuple[float, float, tuple[float, float]]:
    """Reads off the tridiagonal matrix: the gap, the smallest eigenvalue of P, and the error of each."""
    off = np.array(betas[: len(alphas) - 1])
    found = []
    for low in (True, False):
        places = (0, min(1, len(alphas) - 1)) if low else (max(0, len(alphas) - 2), len(alphas) - 1)
        values, vectors = linalg.eigh_tridiagonal(np.array(alphas), off, select="i", select_range=places)
        end = 0 if low else -1
        residual = abs(beta * vectors[-1, end])
        apart = abs(values[0] - values[-1])
        found.append((float(values[end]), float(min(residual, residual**2 / apart if apart > 0 else residual))))
    return found[0][0], 1 - found[1][0], (found[0][1], found[1][1])


def _inverse_lanczos(laplacian: Laplacian, most: int = 60) -> float:
    """L's smallest non-zero eigenvalue as one over the largest of L⁺, by Lanczos on L⁺ with all vectors kept."""
    basis = [_start(laplacian.nodes)]
    alphas: list[float] = []
    betas: list[float] = []
    for _ in range(most):
        u = laplacian.solve(basis[-1], tolerance=1e-7)
        alphas.append(dot(basis[-1], u))
        for _twice in range(2):  # twice is enough (Kahan)
            for known in basis:
                u -= dot(known, u) * known
        beta = sqrt(dot(u, u))
        values, vectors = linalg.eigh_tridiagonal(np.array(alphas), np.array(betas))
        residual = beta * abs(vectors[-1, -1]) / values[-1]
        apart = (values[-1] - values[-2]) / values[-1] if len(values) > 1 else 1.0
        if residual**2 <= ACCURACY * apart or beta <= BREAKDOWN * values[-1]:
            x = np.asarray(sum(weight * known for weight, known in zip(vectors[:, -1], basis, strict=True)))
            x -= x.mean()
            return dot(x, x) / laplacian.quadratic(x)
        betas.append(beta)
        basis.append(u / beta)
    raise ChainError(f"{laplacian.name}: the spectral gap did not converge in {most} steps")
