"""Theorem 1: Multi-Walk with R walks (Section 4.1, Appendix B).

    O( FLRH/T + Rζ²/(p'T) + √(FL(σ² + ζ²)/T) + (FLR√(Vσ² + H²ζ²)/T)^⅔ )

With constants, from the end of the proof, doubled to clear its factor ½ on the left:

    average ≤ 8RF/(ηT) + 12ηL(σ² + ζ²)/R + 48η²L²(Vσ² + H²ζ²) + 16c²Rζ²/((1 − λ*)T),   η ≤ min{1/(7LH), R/(6L)}

The proof's 6ηL/R stands, not the 6ηL²/R that a slip in Lemma 1's statement leads to. c is the constant of the mixing
bound: total variation after k steps is at most c λ*^k with c = √V/2, so squared it is V/4; the paper writes c for its
square, and 1 − p' for λ*, which is the same where no large negative eigenvalue is in the way.
"""

from __future__ import annotations

from math import sqrt

from walktalk.theory.bound import Bound, Inequality, NotApplicable, check_iterations, check_walks
from walktalk.theory.network import Network
from walktalk.theory.problem import Problem


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
