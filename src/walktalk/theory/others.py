"""What is proved of other algorithms, as orders that stand beside those of Theorems 1 and 2.

All are bounds on the average of E‖∇f‖² for smooth losses that need not be convex, with noise of variance σ² at every
node, after K rounds in which everybody trains once; a round is V iterations, K = T/V. Those that do not depend on ζ are
in `exact`, with gradient tracking, D² and their like; those with a momentum, or with results that are late, are in
`momentum`, and our own.

D-PSGD (Koloskova, Loizou, Boreiri, Jaggi, Stich, ICML 2020, Theorem 2 with one local step):

    √(FLσ²/(VK)) + (FL(σ/√p + ζ/p)/K)^⅔ + FL/(pK)

CECA (Ding, Jin, Ying, Yuan, Yin, ICML 2023): the same for graphs that change, τ of which together make p = 1, with τ =
⌈log₂ V⌉. All its weights are circulant with rows that sum to one, so the mean of all is kept, and what is τ to 2τ
rounds old is the same at all nodes. Of the paper we have read the abstract, which says that noise is all that counts
after Õ(V³) rounds; this has V³τ² for alike nodes, V³τ⁴ for unlike ones (a test):

    √(FLσ²/(VK)) + (FL(σ√τ + ζτ)/K)^⅔ + FLτ/K

Epidemic Learning with s receivers (de Vos et al., NeurIPS 2023), free of the graph, since everybody may send to
everybody; its noise is all that counts after V³/s² rounds:

    √(FLσ²/(VK)) + (FL(σ + ζ)/(√s K))^⅔ + FL/K

Teleportation with k models (Takezawa, Stich, ICLR 2025, Theorem 1), with p_k of the models' graph, and K = T/k. A model
is at a node that was drawn, so that unlike data are noise to it; drawn are different nodes, so that of the mean of all
k the share (k − 1)/(V − 1) of that is not there (k = V: none is left). From memory; it is also what the theorem of
D-PSGD says of k nodes with variance σ² + ζ² and data that are alike:

    √(FL(σ² + (1 − (k−1)/(V−1))ζ²)/(kK)) + (FL√(σ² + ζ²)/(√p_k K))^⅔ + FL/(p_k K)

FedAvg with one local step, which is SGD with V batches at once (Ghadimi, Lan, SIAM J. Optim. 2013), and FedProx, which
is then the same:

    √(FLσ²/(VK)) + FL/K

What is proved of the rest cannot stand beside these, or we have not read it:

- with bounds on the gradients themselves or constants of a codec, which no `Problem` has: CHOCO-SGD, SwarmSGD,
  QG-DSGDm, FedOpt by Adam, Yogi or Adagrad;
- in the long run only: SGP and OSGP (Assran et al. 2019);
- by constants of a product of matrices along its trees: RelaySGD;
- for convex losses or up to a limit: token SAGA, Walkman, DIGEST.

They leave constants out, and different ones: they tell what matters as K grows, not who is ahead by a third. All are
from memory of the papers where nothing else is said.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import sqrt

from walktalk.graphs import cycle
from walktalk.theory.bound import Bound
from walktalk.theory.exact import (
    d2_order,
    extra_order,
    gradient_tracking_order,
    k_gt_order,
    push_pull_order,
    scaffold_order,
)
from walktalk.theory.in_rounds import in_rounds
from walktalk.theory.momentum import fedbuff_order, fedopt_order, momentum_tracking_order, slowmo_order
from walktalk.theory.network import Network, network
from walktalk.theory.problem import Problem


def d_psgd_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """Gossip in rounds.

    Args:
        network: What `network(graph)` found.
        problem: F, L, σ² and ζ² of the task.
        iterations: T, completed local trainings.
    """
    spread = sqrt(problem.sigma2 / network.p) + sqrt(problem.zeta2) / network.p
    return in_rounds(
        "Koloskova et al. 2020", problem, iterations, active=network.nodes, spread=spread, slowness=1 / network.p
    )


def ceca_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """Gossip in rounds, ⌈log₂ V⌉ of which bring everybody the exact mean.

    Args:
        network: Of which only the number of nodes matters.
        problem: F, L, σ² and ζ² of the task.
        iterations: T, completed local trainings.
    """
    rounds = max((network.nodes - 1).bit_length(), 1)
    spread = sqrt(problem.sigma2 * rounds) + sqrt(problem.zeta2) * rounds
    return in_rounds("Ding et al. 2023", problem, iterations, active=network.nodes, spread=spread, slowness=rounds)


def epidemic_order(network: Network, problem: Problem, iterations: float, peers: int = 2) -> Bound:
    """Everybody sends to a few others that are drawn anew in every round.

    Args:
        network: Of which only the number of nodes matters.
        problem: F, L, σ² and ζ² of the task.
        iterations: T, completed local trainings.
        peers: s, to how many.
    """
    spread = (sqrt(problem.sigma2) + sqrt(problem.zeta2)) / sqrt(peers)
    return in_rounds("de Vos et al. 2023", problem, iterations, active=network.nodes, spread=spread, slowness=1.0)


def teleportation_order(network: Network, problem: Problem, iterations: float, models: Network | None = None) -> Bound:
    """A few models that are at other nodes in every round, and gossip on a graph of their own.

    Args:
        network: Of which only the number of nodes matters.
        problem: F, L, σ² and ζ² of the task.
        iterations: T, completed local trainings.
        models: The network of the models; four on a cycle if left out, or as many as there are nodes.
    """
    small = models or _usual_models(min(4, network.nodes))
    left = 1 - (small.nodes - 1) / max(network.nodes - 1, 1)  # of ζ², in the mean of all models
    return in_rounds(
        "Takezawa & Stich 2025",
        problem,
        iterations,
        active=small.nodes,
        spread=sqrt((problem.sigma2 + problem.zeta2) / small.p),
        slowness=1 / small.p,
        variance=problem.sigma2 + left * problem.zeta2,
    )


@cache
def _usual_models(count: int) -> Network:
    return network(cycle(count))


def fedavg_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """A server that averages models after one local step: V batches at once.

    Args:
        network: Of which only the number of nodes matters.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
    """
    return in_rounds("Ghadimi & Lan 2013", problem, iterations, active=network.nodes, spread=0.0, slowness=1.0)


ORDERS: dict[str, Callable[[Network, Problem, float], Bound]] = {
    "sync_gossip": d_psgd_order,
    "local_dsgd": d_psgd_order,  # with one local step
    "slowmo": slowmo_order,  # with one local step
    "gradient_tracking": gradient_tracking_order,
    "momentum_tracking": momentum_tracking_order,
    "k_gt": k_gt_order,  # with one local step
    "d2": d2_order,
    "extra": extra_order,
    "push_pull": push_pull_order,
    "ceca": ceca_order,
    "epidemic_learning": epidemic_order,
    "teleportation": teleportation_order,  # of four models on a cycle
    "scaffold": scaffold_order,
    "fedavg": fedavg_order,  # with one local step
    "fedopt": fedopt_order,  # by momentum, with one local step
    "fedprox": fedavg_order,  # with one local step
    "fedbuff": fedbuff_order,  # with one local step
}
"""By the name of the algorithm."""

PROVED = {
    "multi_walk": "Theorem 1, and 3 where its aggregator dies",
    "async_gossip": "Theorem 2, for matrix mixing",
    "sync_gossip": "Koloskova et al. 2020",
    "local_dsgd": "Koloskova et al. 2020, with one local step",
    "slowmo": "ours, with one local step",
    "gradient_tracking": "Koloskova et al. 2021",
    "momentum_tracking": "Takezawa et al. 2023, the powers of 1 − β and p ours",
    "k_gt": "Liu et al. 2024, here with one local step",
    "d2": "Alghunaim & Yuan 2022, for (I + W)/2",
    "extra": "Alghunaim & Yuan 2022",
    "push_pull": "You & Pu 2024, for two branches or more",
    "ceca": "Ding et al. 2023",
    "epidemic_learning": "de Vos et al. 2023",
    "teleportation": "Takezawa & Stich 2025, here with four models on a cycle",
    "scaffold": "Karimireddy et al. 2020",
    "fedavg": "Ghadimi & Lan 2013, with one local step",
    "fedopt": "ours, for optimizer momentum (FedAvgM) with one local step",
    "fedprox": "Ghadimi & Lan 2013, with one local step",
    "fedbuff": "ours, for nodes that are as fast as each other, with one local step",
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
