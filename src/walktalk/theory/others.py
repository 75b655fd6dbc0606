"""What is proved of other algorithms, as orders that stand beside those of Theorems 1 and 2.

All are bounds on the average of E‖∇f‖² for smooth losses that need not be convex, after K rounds in which everybody
trains once; a round is V iterations, K = T/V.

D-PSGD (Koloskova, Loizou, Boreiri, Jaggi, Stich, ICML 2020, Theorem 2 with one local step):

    √(FLσ²/(VK)) + (FL(σ/√p + ζ/p)/K)^⅔ + FL/(pK)

Gradient tracking (Koloskova, Lin, Stich, NeurIPS 2021), with c = 1 − min(λ_V, 0)², free of ζ:

    √(FLσ²/(VK)) + (FLσ/(√p c K))^⅔ + FL/(pcK)

D²/exact diffusion (Alghunaim and Yuan, IEEE Transactions on Signal Processing 2022), free of ζ, with p̃ = 1 − λ̃² of
(I + W)/2, by which it mixes unless told otherwise: λ̃ = (1 + λ₂)/2:

    √(FLσ²/(VK)) + (FLσ/(√p̃ K))^⅔ + FL/(p̃K)

SCAFFOLD with everybody in every round (Karimireddy et al., ICML 2020), free of ζ and of the graph, which is a star:

    √(FLσ²/(VK)) + FL/K

They leave constants out, and different ones: they tell what matters as K grows, not who is ahead by a third.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

from walktalk.theory.bound import Bound, check_iterations
from walktalk.theory.network import Network
from walktalk.theory.problem import Problem


def d_psgd_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """Gossip in rounds.

    Args:
        network: What `network(graph)` found.
        problem: F, L, σ² and ζ² of the task.
        iterations: T, completed local trainings.
    """
    spread = sqrt(problem.sigma2 / network.p) + sqrt(problem.zeta2) / network.p
    return _in_rounds("Koloskova et al. 2020", network, problem, iterations, spread, 1 / network.p)


def gradient_tracking_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """Gossip in rounds that follows the mean of all gradients.

    Args:
        network: What `network(graph)` found.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
    """
    c = 1 - min(network.smallest, 0.0) ** 2
    spread = sqrt(problem.sigma2 / network.p) / c
    return _in_rounds("Koloskova et al. 2021", network, problem, iterations, spread, 1 / (network.p * c))


def d2_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """Gossip in rounds that takes back what averaging did.

    Args:
        network: What `network(graph)` found.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
    """
    gap = 1 - (1 - network.p_prime / 2) ** 2  # λ̃ = (1 + λ₂)/2, and λ₂ = 1 − p'
    spread = sqrt(problem.sigma2 / gap)
    return _in_rounds("Alghunaim and Yuan 2022", network, problem, iterations, spread, 1 / gap)


def scaffold_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """A server, and corrections at every node.

    Args:
        network: Of which only the number of nodes matters.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
    """
    return _in_rounds("Karimireddy et al. 2020", network, problem, iterations, 0.0, 1.0)


def _in_rounds(
    paper: str, network: Network, problem: Problem, iterations: float, spread: float, slowness: float
) -> Bound:
    """√(FLσ²/(VK)) + (FL spread/K)^⅔ + FL slowness/K."""
    check_iterations(iterations)
    scale, rounds = problem.F * problem.L, iterations / network.nodes
    return Bound(
        paper,
        start=scale * slowness / rounds,
        mixing=0.0,
        noise=sqrt(scale * problem.sigma2 / (network.nodes * rounds)),
        deviation=(scale * spread / rounds) ** (2 / 3),
    )


ORDERS: dict[str, Callable[[Network, Problem, float], Bound]] = {
    "sync_gossip": d_psgd_order,
    "local_dsgd": d_psgd_order,  # with one local step
    "gradient_tracking": gradient_tracking_order,
    "d2": d2_order,
    "scaffold": scaffold_order,
}
"""By the name of the algorithm."""

PROVED = {
    "multi_walk": "Theorem 1, and 3 where its aggregator dies",
    "async_gossip": "Theorem 2, for matrix mixing",
    "sync_gossip": "Koloskova et al. 2020",
    "local_dsgd": "Koloskova et al. 2020, with one local step",
    "gradient_tracking": "Koloskova et al. 2021",
    "d2": "Alghunaim and Yuan 2022, mixing lazily",
    "scaffold": "Karimireddy et al. 2020",
}
"""What `walktalk theory` knows, by the name of the algorithm; of all others the advisor makes pilots."""


def orders(network: Network, problem: Problem, iterations: float) -> dict[str, Bound]:
    """All of them after so many iterations, by the name of the algorithm.

    Args:
        network: What `network(graph)` found.
        problem: F, L, σ² and ζ² of the task.
        iterations: T, completed local trainings.
    """
    return {name: order(network, problem, iterations) for name, order in ORDERS.items()}
