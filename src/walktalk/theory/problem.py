"""What the bounds need to know about the task: F, L, σ² and ζ² (Assumptions 1 to 3), and δ where it is known."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from math import inf, isfinite, sqrt

from walktalk.chains import Age, Chain, ReturnTime, age, metropolis_hastings, return_time, spectrum
from walktalk.core.errors import SpecError
from walktalk.core.settings import misfit
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
                raise misfit(one.name, value, "a number, 0 or more", SpecError)
        if self.L == 0:
            raise misfit("L", 0, "a number above 0", SpecError)

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


# -- A bound: the sum of a few named terms, and the step size that it holds for (Lemma 5) -----------------------------
# Every theorem's proof ends in one inequality for the average of E‖∇f‖² over T iterations, valid for η ≤ 1/d:
#
# average ≤ r₀/(ηT) + bη + cη² + mixing.
#
# Lemma 5 tunes η = min{1/d, √(r₀/(bT)), (r₀/(cT))^⅓}; then the first three are at most
# d r₀/T + 2√(b r₀/T) + 2(r₀√c/T)^⅔.


@dataclass(frozen=True)
class Bound:
    """An upper bound on the average of E‖∇f‖² over the first T iterations."""

    theorem: str  # "Theorem 1", …
    start: float  # from where training begins: the d r₀/T term
    mixing: float  # until the walks are spread out
    noise: float  # of mini-batches and of nodes' data: the term that all algorithms share
    deviation: float  # models drift apart between two mixings
    step_size: float | None = None  # the η that it holds for; None for an order expression
    largest_step_size: float | None = None  # the largest η that the lemmas allow
    note: str = ""  # what a reader should know about it

    @property
    def total(self) -> float:
        """The sum of the terms."""
        return self.start + self.mixing + self.noise + self.deviation


@dataclass(frozen=True)
class NotApplicable:
    """What is returned instead of a bound when the lemmas do not allow the step size."""

    theorem: str  # which
    step_size: float  # the η that was asked for
    largest_step_size: float  # the largest that the lemmas allow

    @property
    def note(self) -> str:
        """Why the bound does not apply, in a sentence."""
        return (
            f"not applicable: η = {self.step_size:.3g} is above {self.largest_step_size:.3g}, the most the lemmas allow"
        )


@dataclass(frozen=True)
class Inequality:
    """The end of a proof: average ≤ r₀/(ηT) + bη + cη² + mixing, for η ≤ 1/d."""

    theorem: str
    r0: float
    b: float
    c: float
    d: float
    mixing: float  # already over T
    note: str = ""

    def bound(self, iterations: int, step_size: float | None = None) -> Bound | NotApplicable:
        """The bound for one's own η, or for Lemma 5's if none is given."""
        return self.tuned(iterations) if step_size is None else self.at(step_size, iterations)

    def tuned_step_size(self, iterations: int) -> float:
        """Lemma 5's η for this many iterations."""
        check_iterations(iterations)
        rates = [1 / self.d]
        rates += [sqrt(self.r0 / (self.b * iterations))] if self.b > 0 else []
        rates += [(self.r0 / (self.c * iterations)) ** (1 / 3)] if self.c > 0 else []
        return min(rates)

    def tuned(self, iterations: int) -> Bound:
        """The bound after Lemma 5, the one that the theorem states."""
        eta, r0 = self.tuned_step_size(iterations), self.r0
        start, noise = self.d * r0 / iterations, 2 * sqrt(self.b * r0 / iterations)
        deviation = 2 * (r0 * sqrt(self.c) / iterations) ** (2 / 3)
        return Bound(self.theorem, start, self.mixing, noise, deviation, eta, 1 / self.d, self.note)

    def at(self, step_size: float, iterations: int) -> Bound | NotApplicable:
        """The inequality for one's own η, before any tuning; not applicable where the lemmas do not allow it."""
        check_iterations(iterations)
        if not 0 < step_size <= (1 / self.d) * (1 + 1e-12):
            return NotApplicable(self.theorem, step_size, 1 / self.d)
        start = self.r0 / (step_size * iterations)
        noise, deviation = self.b * step_size, self.c * step_size**2
        return Bound(self.theorem, start, self.mixing, noise, deviation, step_size, 1 / self.d, self.note)


def check_iterations(iterations: float) -> None:
    """An error unless there is something to average over."""
    if not 0 < iterations < inf:
        raise misfit("iterations", iterations, "a number above 0", SpecError)


def check_walks(walks: int, nodes: int) -> None:
    """An error unless 1 ≤ R ≤ V, as Algorithm 1 has it."""
    if not 1 <= walks <= nodes:
        raise misfit("walks", walks, f"from 1 to the number of nodes, {nodes}", SpecError)


# The form of nearly all orders in rounds: a start, the noise that all nodes share, and how far models come apart.
#
# After K rounds in which so many nodes train once each (V of them, or k of Teleportation), T = VK:
#
#     √(FLσ²/(VK)) + (FL spread/K)^⅔ + FL slowness/K


def in_rounds(
    paper: str,
    problem: Problem,
    iterations: float,
    *,
    active: int,
    spread: float,
    slowness: float,
    variance: float | None = None,
) -> Bound:
    """An order of that form.

    Args:
        paper: Who has proved it.
        problem: F, L, σ² and ζ² of the task.
        iterations: T, completed local trainings.
        active: How many nodes train in a round.
        spread: What drives models apart, up to the step size.
        slowness: By how much steps must be smaller than 1/L.
        variance: Of one update, where it is not σ².
    """
    check_iterations(iterations)
    scale, rounds = problem.F * problem.L, iterations / active
    return Bound(
        paper,
        start=scale * slowness / rounds,
        mixing=0.0,
        noise=sqrt(scale * (problem.sigma2 if variance is None else variance) / iterations),
        deviation=(scale * spread / rounds) ** (2 / 3),
    )
