"""Theorem 2: asynchronous gossip that mixes with P after every gradient (Section 4.1, Appendix C).

    O( FLV/(pT) + √(FL(σ² + ζ²)/T) + (FLV√(σ²/p + ζ²/p²)/T)^⅔ )

With constants, from the end of the proof, doubled to clear its factor ½ on the left:

    average ≤ 8VF/(ηT) + 8ηL(σ² + 2ζ²)/V + 4η²L²(8σ²/p + 48ζ²/p²),   η ≤ min{p/(14L), V/(4L)}

The bound is generous: the proof lets every node take a gradient in its deviation lemma, where one does per iteration,
and its noise term is twice what its own lemma gives.
"""

from __future__ import annotations

from math import sqrt

from walktalk.theory.bound import Bound, Inequality, NotApplicable, check_iterations
from walktalk.theory.network import Network
from walktalk.theory.problem import Problem

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
