"""`Chain`: a Markov chain on the nodes of a graph; the paper's matrix P (Section 3, Assumption 4).

P moves a walk in Multi-Walk (Algorithm 1, line 11) and mixes the models in gossip (Algorithm 2, line 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from walktalk.core.errors import ChainError
from walktalk.core.lazy import later
from walktalk.graphs import Floats, GraphLike, Ints, as_graph

if TYPE_CHECKING:
    from scipy import sparse
    from scipy.sparse import csr_array
else:
    sparse = later("scipy.sparse")
if TYPE_CHECKING:
    from scipy import sparse
    from scipy.sparse import csgraph, csr_array
else:
    sparse = later("scipy.sparse")
    csgraph = later("scipy.sparse.csgraph")
if TYPE_CHECKING:
    from scipy import sparse
else:
    sparse = later("scipy.sparse")


# -- Drawing the next node of a chain in constant time ----------------------------------------------------------------
# One node at a time: Vose's alias method (1991). Each row is split into as many equal parts as it has entries, and each
# part holds at most two of them; so one random number chooses a part and one of its two. A row's table is made when the
# row is first needed. Many nodes at a time: one sorted search over the cumulative rows.

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


# -- `Chain`: a Markov chain on the nodes of a graph; the paper's matrix P (Section 3, Assumption 4) ------------------

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


# Where a chain is in the long run, and how long it takes to come back: for chains that favour some nodes.


def stationary(chain: Chain) -> Floats:
    """π with π P = π: the share of its steps that a walk is at each node; the chain has to be irreducible.

    Args:
        chain: Any chain; of one that is doubly stochastic this is 1/V everywhere.
    """
    from scipy.sparse import csc_array, eye_array, vstack
    from scipy.sparse.linalg import spsolve

    nodes = chain.nodes
    balance = csc_array(chain.matrix.T - eye_array(nodes)).tocsr()
    # One of the equations follows from the others; in its place all shares sum to 1.
    system = csc_array(vstack([balance[: nodes - 1, :], csc_array(np.ones((1, nodes)))]))
    right = np.zeros(nodes)
    right[-1] = 1.0
    return np.asarray(spsolve(system, right), dtype=np.float64).reshape(nodes)


def mean_return_times(chain: Chain) -> Floats:
    """Steps from a node until the walk is there again, on average: 1 / π (Kac 1947).

    Args:
        chain: An irreducible chain.
    """
    return 1.0 / stationary(chain)


# The simple random walk: a neighbour drawn uniformly. Uniform in the long run only if all degrees are equal, and
# periodic on bipartite graphs (an even cycle), so it breaks Assumption 4 on most graphs: `check` says so.


def simple_walk(graph: GraphLike) -> Chain:
    """The chain as a sparse matrix; a node without neighbours stays where it is.

    Args:
        graph: a `Graph`, or one of networkx.
    """
    graph = as_graph(graph)
    degrees = graph.degrees
    chance = 1.0 / np.repeat(degrees, degrees)
    moves = sparse.csr_array((chance, graph.indices, graph.indptr), shape=(graph.nodes, graph.nodes))
    alone = (degrees == 0).astype(np.float64)
    matrix = sparse.csr_array(moves + sparse.diags_array(alone)) if alone.any() else moves
    return Chain(matrix, f"simple_walk({graph.name})")


# Metropolis–Hastings: the paper's P (Section 4.1), uniform in the long run on any connected graph.
#
# p_ij = min(1/(d_i + 1), 1/(d_j + 1)) for neighbours i and j; the walk stays put with what is left. The matrix is
# symmetric, so it is doubly stochastic, and every node stays put sometimes, so it is never periodic.
#
# With weights L it is p_ij = min(1/(d_i + 1), (L_j / L_i) / (d_j + 1)): in the long run a walk is at a node in
# proportion to its weight (Ayache and El Rouayheb 2020), and comes back to it after ΣL / L_v steps on average. Where a
# node is much heavier than all around it, it hardly ever leaves.


def metropolis_hastings(graph: GraphLike, weights: Sequence[float] | None = None) -> Chain:
    """The chain as a sparse matrix; a node without neighbours stays where it is.

    Args:
        graph: The graph that walks move on.
        weights: How often it is to be at each node, in proportion; left out: equally often.
    """
    graph = as_graph(graph)
    degrees = graph.degrees
    here, there = np.repeat(degrees, degrees) + 1.0, degrees[graph.indices] + 1.0
    if weights is not None:
        heavy = _checked(weights, graph.nodes)
        there = there * np.repeat(heavy, degrees) / heavy[graph.indices]
    chances, shape = 1.0 / np.maximum(here, there), (graph.nodes, graph.nodes)
    moves = sparse.csr_array((chances, graph.indices, graph.indptr), shape=shape)
    stay = 1.0 - np.asarray(moves.sum(axis=1))
    kind = "metropolis_hastings" if weights is None else "weighted_metropolis_hastings"
    return Chain(sparse.csr_array(moves + sparse.diags_array(stay)), f"{kind}({graph.name})")


def _checked(weights: Sequence[float], nodes: int) -> npt.NDArray[np.float64]:
    heavy = np.asarray(weights, dtype=np.float64)
    if heavy.shape != (nodes,) or not np.isfinite(heavy).all() or not (heavy > 0).all():
        raise ChainError(f"weights: {nodes} numbers above 0 are needed, one for each node")
    return heavy


def metropolis_step(
    node: int,
    degree: int,
    neighbours: Sequence[int],
    neighbour_degrees: Sequence[int],
    random: Random,
    ratios: Sequence[float] | None = None,
) -> int:
    """One Metropolis–Hastings step as a node takes it, knowing only how many neighbours its neighbours have.

    Propose one of itself and its neighbours, all alike; go to neighbour j with probability min(1, (d_i+1)/(d_j+1)),
    else stay. That is p_ij = 1/(d_i+1) · min(1, (d_i+1)/(d_j+1)), the formula above. One random number a step: its
    whole part proposes, its fraction accepts. A node with a dead neighbour may leave its `degree` as it was and only
    drop the dead one from `neighbours`: it stays put where it would have gone there, and the chain stays symmetric.

    Args:
        node: where the walk is.
        degree: how many neighbours that node has.
        neighbours: the neighbours that it may go to.
        neighbour_degrees: how many neighbours each of those has, in the same order.
        random: where the one random number comes from.
        ratios: weights of the neighbours, in the same order, over that of the node; left out: all have the same.
    """
    size = degree + 1
    x = random.random() * size
    proposal = int(x)
    if proposal >= len(neighbours):
        return node
    most = size if ratios is None else size * ratios[proposal]
    return node if (x - proposal) * (neighbour_degrees[proposal] + 1) >= most else neighbours[proposal]


# Metropolis–Hastings with jumps (MHLJ; Liu, Dwyer, El Rouayheb, "Decentralized learning via random walk with jumps").
#
# With probability p_J a walk does not take a step of the weighted chain but runs over d uniform hops, d of a truncated
# geometric distribution: P(d) ∝ p_d (1 − p_d)^(d−1) for d = 1 … r. So it gets away from a node that is much heavier
# than all around it ("entrapment"), at the price of a long run that is off the weights by the order of p_J. The
# abstract was read; the distribution of d is from memory of the paper.


def hops_of_a_jump(random: Random, chance: float, longest: int) -> int:
    """How many hops a jump goes over; one random number.

    Args:
        random: Where it comes from.
        chance: p_d, of ending after each hop.
        longest: r, the most.
    """
    x = random.random()
    for hops, share in enumerate(jump_lengths(chance, longest), start=1):
        x -= share
        if x < 0:
            return hops
    return longest


def jump_lengths(chance: float, longest: int) -> list[float]:
    """P(d) for d = 1 … r."""
    raw = [chance * (1.0 - chance) ** (d - 1) for d in range(1, longest + 1)]
    return [one / sum(raw) for one in raw]


def metropolis_with_jumps(
    graph: GraphLike, weights: Sequence[float] | None, jump: float, chance: float = 0.5, longest: int = 3
) -> Chain:
    """The chain from one visit to the next; nodes that a jump only runs through are none.

    Args:
        graph: The graph that walks move on.
        weights: Of the chain between jumps; see `metropolis_hastings`.
        jump: p_J, how often it jumps.
        chance: p_d, of a jump's end after each hop.
        longest: r, the most hops of a jump.
    """
    graph = as_graph(graph)
    usual, hop = metropolis_hastings(graph, weights).matrix, simple_walk(graph).matrix
    total, power = (1.0 - jump) * usual, hop
    for share in jump_lengths(chance, longest):
        total = total + jump * share * power
        power = power @ hop
    return Chain(total.tocsr(), f"metropolis_with_jumps({graph.name}, jump={jump:g})")
