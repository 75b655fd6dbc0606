"""What is proved of other algorithms, as orders that stand beside those of Theorems 1 and 2.

All are bounds on the average of E‖∇f‖² for smooth losses that need not be convex, after K rounds in which everybody
trains once; a round is V iterations, K = T/V.

D-PSGD (Koloskova, Loizou, Boreiri, Jaggi, Stich, ICML 2020, Theorem 2 with one local step):

    √(FLσ²/(VK)) + (FL(σ/√p + ζ/p)/K)^⅔ + FL/(pK)

Gradient tracking (Koloskova, Lin, Stich, NeurIPS 2021), with c = 1 − min(λ_V, 0)², free of ζ:

    √(FLσ²/(VK)) + (FLσ/(√p c K))^⅔ + FL/(pcK)

D² by (I + W)/2, which is exact diffusion (Alghunaim, Yuan, IEEE TSP 2022), with p̃ = 1 − λ₂((I + W)/2)², free of ζ
but for the start; its noise is all that counts after V³/p̃² rounds:

    √(FLσ²/(VK)) + (FLσ/(√p̃ K))^⅔ + FL/(p̃K)

Epidemic Learning with s receivers (de Vos et al., NeurIPS 2023), free of the graph, since everybody may send to
everybody; its noise is all that counts after V³/s² rounds:

    √(FLσ²/(VK)) + (FL(σ + ζ)/(√s K))^⅔ + FL/K

SCAFFOLD with everybody in every round (Karimireddy et al., ICML 2020), free of ζ and of the graph, which is a star; and
FedAvg with one local step, which is SGD with V batches at once (Ghadimi, Lan, SIAM J. Optim. 2013):

    √(FLσ²/(VK)) + FL/K

What is proved of the others cannot stand beside these: of SGP and OSGP (Assran et al. 2019) how it is in the long run,
of CHOCO-SGD, SwarmSGD and QG-DSGDm with bounds on the gradients themselves or constants of a codec, which no `Problem`
has, of RelaySGD by constants of a product of matrices along its trees, of token SAGA, Walkman and DIGEST for convex
losses or up to a limit.

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
    """Gossip in rounds by (I + W)/2 that takes back what averaging did to a model.

    Args:
        network: What `network(graph)` found.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
    """
    p = 1 - (1 - network.p_prime / 2) ** 2  # λ₂ of (I + W)/2 is half of the way from λ₂ to 1, none is negative
    return _in_rounds("Alghunaim & Yuan 2022", network, problem, iterations, sqrt(problem.sigma2 / p), 1 / p)


def epidemic_order(network: Network, problem: Problem, iterations: float, peers: int = 2) -> Bound:
    """Everybody sends to a few others that are drawn anew in every round.

    Args:
        network: Of which only the number of nodes matters.
        problem: F, L, σ² and ζ² of the task.
        iterations: T, completed local trainings.
        peers: s, to how many.
    """
    spread = (sqrt(problem.sigma2) + sqrt(problem.zeta2)) / sqrt(peers)
    return _in_rounds("de Vos et al. 2023", network, problem, iterations, spread, 1.0)


def scaffold_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """A server, and corrections at every node.

    Args:
        network: Of which only the number of nodes matters.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
    """
    return _in_rounds("Karimireddy et al. 2020", network, problem, iterations, 0.0, 1.0)


def fedavg_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """A server that averages models after one local step: V batches at once.

    Args:
        network: Of which only the number of nodes matters.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
    """
    return _in_rounds("Ghadimi & Lan 2013", network, problem, iterations, 0.0, 1.0)


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
    "epidemic_learning": epidemic_order,
    "scaffold": scaffold_order,
    "fedavg": fedavg_order,  # with one local step
}
"""By the name of the algorithm."""

PROVED = {
    "multi_walk": "Theorem 1, and 3 where its aggregator dies",
    "async_gossip": "Theorem 2, for matrix mixing",
    "sync_gossip": "Koloskova et al. 2020",
    "local_dsgd": "Koloskova et al. 2020, with one local step",
    "gradient_tracking": "Koloskova et al. 2021",
    "d2": "Alghunaim & Yuan 2022, for (I + W)/2",
    "epidemic_learning": "de Vos et al. 2023",
    "scaffold": "Karimireddy et al. 2020",
    "fedavg": "Ghadimi & Lan 2013, with one local step",
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
