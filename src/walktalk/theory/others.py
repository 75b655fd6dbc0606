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
from importlib import import_module
from math import sqrt

from walktalk.core.plugins import registered
from walktalk.graphs import cycle
from walktalk.theory.bound import Bound, in_rounds
from walktalk.theory.problem import Network, Problem, network


def d_psgd_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """The order of D-PSGD, gossip in rounds (Lian et al. 2017).

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


def orders(network: Network, problem: Problem, iterations: float) -> dict[str, Bound]:
    """The bounds of all algorithms that name one (`Protocol.bound`) after so many iterations, by the algorithm's name.

    Args:
        network: What `network(graph)` found.
        problem: F, L, σ² and ζ² of the task.
        iterations: T, completed local trainings.
    """
    named = {name: kind.bound for name, kind in registered("algorithm").items() if kind.bound}
    return {name: _function(bound)(network, problem, iterations) for name, bound in named.items()}


def _function(bound: str) -> Callable[[Network, Problem, float], Bound]:
    """The function of that name in `walktalk.theory`, or "module:function"."""
    module, _, name = bound.rpartition(":")
    found: Callable[[Network, Problem, float], Bound] = getattr(import_module(module or "walktalk.theory"), name)
    return found
