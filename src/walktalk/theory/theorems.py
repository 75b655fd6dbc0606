"""Theorem 3: Multi-Walk when the aggregator fails E times (Section 5, Appendix D).

    O( FLRE max H/T + Σᵢ Rζ²/(p'ᵢT) + √(FL(σ² + ζ²)/T) + (FLR√(EVσ² + E²ζ² max H²)/T)^⅔ )

With constants, from the end of the proof, doubled to clear its factor ½ on the left:

    average ≤ 8RF/(ηT) + 12ηL(σ² + ζ²)/R + 144η²L²E(Vσ² + E max H² ζ²) + Σᵢ 16c²Rζ²/((1 − λ*ᵢ)T),
    η ≤ min{1/(15LE max H), R/(6L)}

The networks are those between failures: E + 1 of them, each with its own aggregator. E counts as at least 1, so that
without failures the order is Theorem 1's. The sum is over p'ᵢT; a line of the proof drops the T.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from walktalk.core.errors import SpecError
from walktalk.core.settings import misfit
from walktalk.graphs import GraphLike, as_graph
from walktalk.theory.problem import (
    Bound,
    Inequality,
    Network,
    NotApplicable,
    Problem,
    check_iterations,
    check_walks,
    network,
)

# Theorem 2: asynchronous gossip that mixes with P after every gradient (Section 4.1, Appendix C).
#
#     O( FLV/(pT) + √(FL(σ² + ζ²)/T) + (FLV√(σ²/p + ζ²/p²)/T)^⅔ )
#
# With constants, from the end of the proof, doubled to clear its factor ½ on the left:
#
#     average ≤ 8VF/(ηT) + 8ηL(σ² + 2ζ²)/V + 4η²L²(8σ²/p + 48ζ²/p²),   η ≤ min{p/(14L), V/(4L)}
#
# The bound is generous: the proof lets every node take a gradient in its deviation lemma, where one does per iteration,
# and its noise term is twice what its own lemma gives.

GENEROUS = "generous, not tight: the proof lets every node take a gradient where one does per iteration"


def theorem2(
    network: Network, problem: Problem, iterations: int, step_size: float | None = None
) -> Bound | NotApplicable:
    """The bound with the proof's constants, for Lemma 5's step size or for one's own.

    Args:
        network: From `theory.network(graph)`.
        problem: The task's constants.
        iterations: T, over which ‖∇f‖² is averaged.
        step_size: One's own η; tuned as in Lemma 5 if left out.
    """
    proof = theorem2_inequality(network, problem, iterations)
    return proof.bound(iterations, step_size)


def theorem2_inequality(network: Network, problem: Problem, iterations: int) -> Inequality:
    """Where the proof of Theorem 2 ends, before the step size is tuned.

    Args:
        network: what `network(graph)` found.
        problem: F, L, σ² and ζ² of the task.
        iterations: T, the number of completed local trainings.
    """
    check_iterations(iterations)
    spread = 8 * problem.sigma2 / network.p + 48 * problem.zeta2 / network.p**2
    return Inequality(
        "Theorem 2",
        r0=8 * network.nodes * problem.F,
        b=8 * problem.L * (problem.sigma2 + 2 * problem.zeta2) / network.nodes,
        c=4 * problem.L**2 * spread,
        d=max(14 * problem.L / network.p, 4 * problem.L / network.nodes),
        mixing=0.0,
        note=GENEROUS,
    )


def theorem2_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """The expression inside the O(·), constants left out.

    Args:
        network: what `network(graph)` found.
        problem: F, L, σ² and ζ² of the task.
        iterations: T, the number of completed local trainings.
    """
    check_iterations(iterations)
    scale = problem.F * problem.L
    spread = problem.sigma2 / network.p + problem.zeta2 / network.p**2
    return Bound(
        "Theorem 2",
        start=scale * network.nodes / (network.p * iterations),
        mixing=0.0,
        noise=sqrt(scale * (problem.sigma2 + problem.zeta2) / iterations),
        deviation=(scale * network.nodes * sqrt(spread) / iterations) ** (2 / 3),
        note=GENEROUS,
    )


# Theorem 1: Multi-Walk with R walks (Section 4.1, Appendix B).
#
#     O( FLRH/T + Rζ²/(p'T) + √(FL(σ² + ζ²)/T) + (FLR√(Vσ² + H²ζ²)/T)^⅔ )
#
# With constants, from the end of the proof, doubled to clear its factor ½ on the left:
#
#     average ≤ 8RF/(ηT) + 12ηL(σ² + ζ²)/R + 48η²L²(Vσ² + H²ζ²) + 16c²Rζ²/((1 − λ*)T),   η ≤ min{1/(7LH), R/(6L)}
#
# The proof's 6ηL/R stands, not the 6ηL²/R that a slip in Lemma 1's statement leads to. c is the constant of the mixing
# bound: total variation after k steps is at most c λ*^k with c = √V/2, so squared it is V/4; the paper writes c for its
# square, and 1 − p' for λ*, which is the same where no large negative eigenvalue is in the way.


def theorem1(
    network: Network, problem: Problem, walks: int, iterations: int, step_size: float | None = None
) -> Bound | NotApplicable:
    """The bound with the proof's constants, for Lemma 5's step size or for one's own.

    Args:
        network: From `theory.network(graph)`.
        problem: The task's constants.
        walks: R.
        iterations: T, over which ‖∇f‖² is averaged.
        step_size: One's own η; tuned as in Lemma 5 if left out.
    """
    proof = theorem1_inequality(network, problem, walks, iterations)
    return proof.bound(iterations, step_size)


def theorem1_inequality(network: Network, problem: Problem, walks: int, iterations: int) -> Inequality:
    """Where the proof of Theorem 1 ends, before the step size is tuned.

    Args:
        network: what `network(graph)` found.
        problem: F, L, σ² and ζ² of the task.
        walks: R, from 1 to the number of nodes.
        iterations: T, the number of completed local trainings.
    """
    check_walks(walks, network.nodes)
    check_iterations(iterations)
    spread = network.nodes * problem.sigma2 + network.H2 * problem.zeta2
    return Inequality(
        "Theorem 1",
        r0=8 * walks * problem.F,
        b=12 * problem.L * (problem.sigma2 + problem.zeta2) / walks,
        c=48 * problem.L**2 * spread,
        d=max(7 * problem.L * network.H, 6 * problem.L / walks),
        mixing=mixing_term(network, problem, walks) / iterations,
    )


def mixing_term(network: Network, problem: Problem, walks: int) -> float:
    """16c²Rζ²/(1 − λ*), c² = V/4: what it costs that walks start at known nodes."""
    return 16 * (network.nodes / 4) * walks * problem.zeta2 / (1 - network.modulus)


def theorem1_order(network: Network, problem: Problem, walks: int, iterations: float) -> Bound:
    """The expression inside the O(·), constants left out.

    Args:
        network: what `network(graph)` found.
        problem: F, L, σ² and ζ² of the task.
        walks: R, from 1 to the number of nodes.
        iterations: T, the number of completed local trainings.
    """
    check_walks(walks, network.nodes)
    check_iterations(iterations)
    scale = problem.F * problem.L
    spread = network.nodes * problem.sigma2 + network.H2 * problem.zeta2
    return Bound(
        "Theorem 1",
        start=scale * walks * network.H / iterations,
        mixing=walks * problem.zeta2 / (network.p_prime * iterations),
        noise=sqrt(scale * (problem.sigma2 + problem.zeta2) / iterations),
        deviation=(scale * walks * sqrt(spread) / iterations) ** (2 / 3),
    )


def theorem3(
    networks: Sequence[Network], problem: Problem, walks: int, iterations: int, step_size: float | None = None
) -> Bound | NotApplicable:
    """The bound with the proof's constants; one network before each failure and one after the last.

    Args:
        networks: From `theory.stages`: one before each failure and one after the last.
        problem: The task's constants.
        walks: R.
        iterations: T, over which ‖∇f‖² is averaged.
        step_size: One's own η; tuned as in Lemma 5 if left out.
    """
    proof = theorem3_inequality(networks, problem, walks, iterations)
    return proof.bound(iterations, step_size)


def theorem3_inequality(networks: Sequence[Network], problem: Problem, walks: int, iterations: int) -> Inequality:
    """Where the proof of Theorem 3 ends, before the step size is tuned.

    Args:
        networks: one network before each failure and one after the last, as `stages` gives them.
        problem: F, L, σ² and ζ² of the task.
        walks: R, from 1 to the number of nodes.
        iterations: T, the number of completed local trainings.
    """
    failures, nodes, H2 = _summary(networks, walks, iterations)
    return Inequality(
        "Theorem 3",
        r0=8 * walks * problem.F,
        b=12 * problem.L * (problem.sigma2 + problem.zeta2) / walks,
        c=144 * problem.L**2 * failures * (nodes * problem.sigma2 + failures * H2 * problem.zeta2),
        d=max(15 * problem.L * failures * sqrt(H2), 6 * problem.L / walks),
        mixing=sum(mixing_term(between, problem, walks) for between in networks) / iterations,
    )


def theorem3_order(networks: Sequence[Network], problem: Problem, walks: int, iterations: float) -> Bound:
    """The expression inside the O(·), constants left out.

    Args:
        networks: one network before each failure and one after the last, as `stages` gives them.
        problem: F, L, σ² and ζ² of the task.
        walks: R, from 1 to the number of nodes.
        iterations: T, the number of completed local trainings.
    """
    failures, nodes, H2 = _summary(networks, walks, iterations)
    scale = problem.F * problem.L
    spread = failures * nodes * problem.sigma2 + failures**2 * problem.zeta2 * H2
    return Bound(
        "Theorem 3",
        start=scale * walks * failures * sqrt(H2) / iterations,
        mixing=sum(walks * problem.zeta2 / (between.p_prime * iterations) for between in networks),
        noise=sqrt(scale * (problem.sigma2 + problem.zeta2) / iterations),
        deviation=(scale * walks * sqrt(spread) / iterations) ** (2 / 3),
    )


def stages(graph: GraphLike, failures: int, aggregator: int = 0) -> list[Network]:
    """The networks between failures: each time the aggregator dies, the living node with most neighbours takes over.

    Ties go to the lowest number. What is left must stay connected, as Assumption 4 demands after every failure.

    Args:
        graph: The graph before any failure.
        failures: How many aggregators die, E.
        aggregator: The first of them.
    """
    graph = as_graph(graph)
    if not 0 <= failures < graph.nodes:
        raise misfit("failures", failures, f"from 0 to one less than the nodes, {graph.nodes - 1}", SpecError)
    found = [network(graph, aggregator)]
    for _ in range(failures):
        graph = graph.part(node for node in range(graph.nodes) if node != aggregator).connected()
        aggregator = int(graph.degrees.argmax())
        found.append(network(graph, aggregator))
    return found


def _summary(networks: Sequence[Network], walks: int, iterations: float) -> tuple[int, int, float]:
    """The networks between failures as Theorem 3 takes them: E (at least 1), V and max H²."""
    if not networks:
        raise SpecError("Theorem 3 needs the network before each failure and after the last: at least one")
    nodes = max(between.nodes for between in networks)
    check_walks(walks, nodes)
    check_iterations(iterations)
    return max(1, len(networks) - 1), nodes, max(between.H2 for between in networks)
