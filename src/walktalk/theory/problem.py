"""What the bounds need to know about the task: F, L, σ² and ζ² (Assumptions 1 to 3), and δ where it is known."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from math import isfinite

from walktalk.chains import Age, Chain, ReturnTime, age, metropolis_hastings, return_time, spectrum
from walktalk.core.errors import SpecError
from walktalk.graphs import GraphLike, as_graph


@dataclass(frozen=True)
class Problem:
    """The constants of a task. All 1 by default: then only the network speaks."""

    F: float = 1.0  # f(x₀) − f*, what there is to gain
    L: float = 1.0  # smoothness: how fast a gradient changes
    sigma2: float = 1.0  # σ², the variance of a mini-batch gradient at a node
    zeta2: float = 1.0  # ζ², how far a node's gradient is from the mean over nodes, squared
    delta: float | None = None  # δ, how fast that difference changes with the model; None: as fast as L allows

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None and not (isfinite(value) and value >= 0):
                raise SpecError(f"{one.name} = {value!r}, but it must be a number, 0 or more")
        if self.L == 0:
            raise SpecError("L = 0, but it must be more than 0")

    @property
    def curvature_difference(self) -> float:
        """δ: 2L where nothing is known of it."""
        return 2 * self.L if self.delta is None else self.delta


# What the bounds need to know about the network: V, p, p', H² and the messages of one iteration (Section 4).


@dataclass(frozen=True)
class Network:
    """The numbers of a graph and its chain that Theorems 1 to 3 and Tables 1 to 4 are made of."""

    name: str  # the graph's
    nodes: int  # V
    edges: int  # undirected
    mean_degree: float  # neighbours of a node, on average
    p: float  # spectral gap of PᵀP
    p_prime: float  # spectral gap of P
    modulus: float  # λ*, the second largest modulus of an eigenvalue of P
    smallest: float  # the smallest eigenvalue of P
    returning: ReturnTime  # to the aggregator: mean V, second moment H²
    nonzeros: int  # ‖P‖₀ as Table 3 counts it, with the diagonal
    nonzeros_off_diagonal: int  # what is really sent when P mixes
    move_probability: float  # share of a walk's steps that leave their node
    chain: Chain = field(repr=False, compare=False)  # all of these are its

    @property
    def H2(self) -> float:
        """The second moment of the return time to the aggregator."""
        return self.returning.second_moment

    @property
    def H(self) -> float:
        """H, the root of the second moment of the return time."""
        return self.returning.h

    @cached_property
    def age(self) -> Age:
        """How long ago a walk was at the aggregator, on average over time: another linear system, where it is asked."""
        return age(self.chain, self.returning.node)


def network(graph: GraphLike, aggregator: int = 0, chain: Chain | None = None) -> Network:
    """The network's numbers, with Metropolis–Hastings unless another chain is given.

    Args:
        graph: The graph.
        aggregator: The node at which walks are mixed.
        chain: Another chain than Metropolis–Hastings.
    """
    graph = as_graph(graph)
    chain = chain or metropolis_hastings(graph)
    gaps = spectrum(chain)
    return Network(
        name=graph.name,
        nodes=graph.nodes,
        edges=graph.edges,
        mean_degree=2 * graph.edges / graph.nodes,
        p=gaps.p,
        p_prime=gaps.p_prime,
        modulus=gaps.modulus,
        smallest=gaps.smallest,
        returning=return_time(chain, aggregator),
        nonzeros=chain.nonzeros(),
        nonzeros_off_diagonal=chain.nonzeros(diagonal=False),
        move_probability=chain.move_probability(),
        chain=chain,
    )
