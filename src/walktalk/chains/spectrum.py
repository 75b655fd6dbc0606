"""Spectral gaps, p of PᵀP and p' of P (Assumption 4); and return and hitting times.

Small chains: all eigenvalues, dense. Large ones: the three-term Lanczos recurrence on P finds both ends of the spectrum
in a few hundred products where the graph mixes fast. Where the gap is tiny (a cycle, a torus) it would take as many
steps as the graph is long; one sees that early, because the estimate keeps falling as 1/steps². Then Lanczos on L⁺, by
solves with the Laplacian, takes about ten. The gap is 1/(largest eigenvalue of L⁺), never 1 − λ: a gap of 1e-11 is as
exact as one of 0.1.

Return and hitting times (Theorem 1 and Appendix E) come from the same Laplacian. h is the number of steps from a node
until the walk is there again; E[h] = 1/π and H² = E[h²]. With T_v the time to reach v, 0 from v itself,
H² = (2 E_π[T_v] + 1)/π_v for every stationary chain; for a symmetric one π is uniform and E_π[T_v] = V · L⁺_vv with
L = I − P. So one linear system gives a node's H², and the diagonal of L⁺ gives everybody's: the best aggregator is the
node with the smallest entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from walktalk.chains.chain import Chain
from walktalk.chains.laplacian import Laplacian, dot, laplacian_of
from walktalk.core.errors import ChainError
from walktalk.core.lazy import later
from walktalk.graphs import Floats

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


# -- Return and hitting times ------------------------------------------------------------------------------------------

DENSE_TIMES = 1500  # nodes; below this everything is exact, from one dense inverse
SKETCHES = 64  # random solves for the estimate of all nodes' return times on a large graph
ALIKE = 1 + 1e-9  # second moments this close are equal, and the lowest number wins
SHORTLIST = 8  # nodes at each end of the estimate that are then computed exactly


@dataclass(frozen=True)
class ReturnTime:
    """The time of a walk from a node back to it."""

    node: int  # the node
    mean: float  # E[h] = 1/π: V for a doubly stochastic chain
    second_moment: float  # H² = E[h²]

    @property
    def h(self) -> float:
        """H, the root of the second moment: what the bound of Theorem 1 multiplies."""
        return sqrt(self.second_moment)

    @property
    def mean_age(self) -> float:
        """The time since the last visit, on average over time: (H²/E[h] − 1)/2.

        More than the mean return time where returns are uneven: a moment chosen at random falls into a long absence
        more often than into a short one. On a cycle it is (V² − 1)/4.
        """
        return (self.second_moment / self.mean - 1) / 2

    @property
    def deviation(self) -> float:
        """The standard deviation of the return time."""
        return sqrt(max(0.0, self.second_moment - self.mean**2))


@dataclass(frozen=True)
class Aggregators:
    """Who should be Node 0: the nodes with the shortest and the longest return times."""

    best: ReturnTime  # the node with the least H²
    worst: ReturnTime  # the node with the largest
    exact: bool  # False: the nodes were found by an estimate (their own numbers are exact)
    method: str  # how, in words


def return_time(chain: Chain, node: int = 0) -> ReturnTime:
    """Mean and second moment of the time to come back to a node.

    Args:
        chain: The chain.
        node: The node to come back to.
    """
    _inside(chain, node)
    if chain.nodes <= DENSE_TIMES:
        stationary, hitting = _dense_hitting(chain, node)
        mean = float(1 / stationary[node])
        mean = chain.nodes if abs(mean - chain.nodes) < 1e-9 * chain.nodes else mean  # Kac: exactly V, rounding apart
        return ReturnTime(node, float(mean), float(mean * (2 * (stationary @ hitting) + 1)))
    return _symmetric(laplacian_of(chain), node)


def hitting_times(chain: Chain, target: int = 0) -> Floats:
    """The mean number of steps to a node, from every node; 0 from itself.

    Args:
        chain: The chain.
        target: The node to reach.
    """
    _inside(chain, target)
    if chain.nodes <= DENSE_TIMES:
        return _dense_hitting(chain, target)[1]
    x = laplacian_of(chain).solve(_source(chain.nodes, target))
    return np.asarray(chain.nodes * (x[target] - x))


def aggregators(chain: Chain, sketches: int = SKETCHES) -> Aggregators:
    """The best and the worst node to mix at.

    Exact up to 1500 nodes. For larger graphs L⁺_vv is estimated for all v at once (Spielman and Srivastava, 2011): it
    is the squared length of column v of W^½ B L⁺, which random ±1 combinations of its rows preserve to about
    √(2/sketches). The most promising at each end are then solved exactly.

    Args:
        chain: The chain.
        sketches: Random combinations for large graphs: more are more exact and slower.
    """
    if chain.nodes <= DENSE_TIMES:
        moments = second_moments(chain)
        mean = float(chain.nodes)
        low, high = _first(moments <= moments.min() * ALIKE), _first(moments >= moments.max() / ALIKE)
        best, worst = ReturnTime(low, mean, float(moments[low])), ReturnTime(high, mean, float(moments[high]))
        return Aggregators(best, worst, True, "exact: the diagonal of the pseudo-inverse of I − P")
    laplacian = laplacian_of(chain)
    order = np.argsort(_sketched_diagonal(laplacian, sketches), kind="stable")
    near = [_symmetric(laplacian, int(node)) for node in order[:SHORTLIST]]
    far = [_symmetric(laplacian, int(node)) for node in order[-SHORTLIST:]]
    best, worst = min(near, key=_moment), max(far, key=_moment)
    method = f"estimated from {sketches} random solves; the {SHORTLIST} likeliest at each end solved exactly"
    return Aggregators(best, worst, False, method)


def second_moments(chain: Chain) -> Floats:
    """H² of every node of a symmetric chain of moderate size.

    Args:
        chain: a symmetric one, of moderate size: it is solved densely.
    """
    chain.check()
    if not chain.is_symmetric():
        return np.array([return_time(chain, node).second_moment for node in range(chain.nodes)])
    nodes = chain.nodes
    matrix = np.eye(nodes) - chain.matrix.toarray()
    diagonal = np.linalg.inv(matrix + 1 / nodes).diagonal() - 1 / nodes  # (L + J)⁻¹ = L⁺ + J with J = 11ᵀ/V
    return np.asarray(nodes * (2 * nodes * diagonal + 1))


def _symmetric(laplacian: Laplacian, node: int) -> ReturnTime:
    nodes = laplacian.nodes
    expected = nodes * laplacian.quadratic(_source(nodes, node))
    return ReturnTime(node, float(nodes), nodes * (2 * expected + 1))


def _dense_hitting(chain: Chain, target: int) -> tuple[Floats, Floats]:
    """The stationary distribution, and the hitting times from (I − P without the target) m = 1."""
    nodes = chain.nodes
    matrix = chain.matrix.toarray()
    others = np.delete(np.arange(nodes), target)
    hitting = np.zeros(nodes)
    try:
        hitting[others] = np.linalg.solve(np.eye(nodes - 1) - matrix[np.ix_(others, others)], np.ones(nodes - 1))
        balance = np.eye(nodes) - matrix.T
        balance[0] = 1.0  # one equation is redundant: say instead that the probabilities sum to 1
        stationary = np.linalg.solve(balance, np.eye(nodes)[0])
    except np.linalg.LinAlgError as error:
        raise ChainError(f"{chain.name}: not irreducible: node {target} is not reached from everywhere") from error
    if not (hitting[others] > 0).all() or not (stationary > 0).all():
        raise ChainError(f"{chain.name}: not irreducible: node {target} is not reached from everywhere")
    return stationary, hitting


def _sketched_diagonal(laplacian: Laplacian, sketches: int, batch: int = 8) -> Floats:
    rng = np.random.default_rng(0)
    a, b, weight = laplacian.edges
    total = np.zeros(laplacian.nodes)
    for start in range(0, sketches, batch):
        signs = rng.choice([-1.0, 1.0], size=(len(weight), min(batch, sketches - start))) * np.sqrt(weight)[:, None]
        right = np.zeros((laplacian.nodes, signs.shape[1]))
        for column in range(signs.shape[1]):
            right[:, column] = np.bincount(a, signs[:, column], laplacian.nodes)
            right[:, column] -= np.bincount(b, signs[:, column], laplacian.nodes)
        total += (laplacian.solve(right, tolerance=1e-4) ** 2).sum(axis=1)
    return total / sketches


def _source(nodes: int, node: int) -> Floats:
    right = np.full(nodes, -1 / nodes)
    right[node] += 1
    return right


def _inside(chain: Chain, node: int) -> None:
    if not 0 <= node < chain.nodes:
        raise ChainError(f"{chain.name}: node {node} is not there; nodes are 0 to {chain.nodes - 1}")


def _first(chosen: npt.NDArray[np.bool_]) -> int:
    return int(np.flatnonzero(chosen)[0])


def _moment(time: ReturnTime) -> float:
    return time.second_moment


# The age of a walk: how many of its steps ago it was last at a node, on average over time.
#
# Looked at backwards a reversible chain is the same chain, so the time since the last visit has the distribution of the
# time to the next one, from the stationary distribution. With m_i the mean time from i to the node, of a symmetric
# chain, the age is m on average, and its square is 2 m² − m on average, both means over all nodes.
#
# Theorem 1 of the paper has the return time in its place, which is shorter where returns are uneven: a moment chosen at
# random falls into a long absence more often than into a short one.


@dataclass(frozen=True)
class Age:
    """Steps of a walk since its last visit to a node."""

    node: int  # the node
    mean: float  # over time
    mean_square: float  # over time


def age(chain: Chain, node: int = 0) -> Age:
    """The age of a walk, where its last visit to a node counts.

    Args:
        chain: A symmetric one, such as Metropolis–Hastings.
        node: The node.
    """
    if not chain.is_symmetric():
        raise ChainError(f"{chain.name}: not symmetric, so the time since a visit is not that to the next one")
    times = hitting_times(chain, node)
    mean = float(times.mean())
    return Age(node, mean, 2 * float((times**2).mean()) - mean)
