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

from walktalk.errors import SpecError
from walktalk.graphs import GraphLike, as_graph
from walktalk.theory.bound import Bound, Inequality, NotApplicable, check_iterations, check_walks
from walktalk.theory.multi_walk import mixing_term
from walktalk.theory.network import Network, network
from walktalk.theory.problem import Problem


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
        raise SpecError(f"failures = {failures!r}, but it must be from 0 to one less than the nodes, {graph.nodes - 1}")
    found = [network(graph, aggregator)]
    for _ in range(failures):
        graph = graph.part(node for node in range(graph.nodes) if node != aggregator).connected()
        aggregator = int(graph.degrees.argmax())
        found.append(network(graph, aggregator))
    return found


def _summary(networks: Sequence[Network], walks: int, iterations: float) -> tuple[int, int, float]:
    """E (at least 1), V and max H²."""
    if not networks:
        raise SpecError("Theorem 3 needs the network before each failure and after the last: at least one")
    nodes = max(between.nodes for between in networks)
    check_walks(walks, nodes)
    check_iterations(iterations)
    return max(1, len(networks) - 1), nodes, max(between.H2 for between in networks)
