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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import ceil, log, sqrt

import numpy as np

from walktalk.chains import Chain, metropolis_hastings, metropolis_with_jumps, stationary
from walktalk.core.errors import SpecError
from walktalk.core.plugins import registered
from walktalk.core.settings import misfit
from walktalk.graphs import GraphLike, as_graph, cycle
from walktalk.theory.problem import (
    Bound,
    Inequality,
    Network,
    NotApplicable,
    Problem,
    check_iterations,
    check_walks,
    in_rounds,
    network,
)


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


# -- Multi-Walk, bounded by the age of its walks: what stands in for Theorem 1 where that says the wrong thing of graphs
# Theorem 1 takes the time since a walk's last visit to the aggregator for the return time, and the node where a walk
# is for one that does not depend on where it was before. The first makes the topology irrelevant for iid data, which it
# is not; the second makes it matter too little for one walk on unlike data. This is our own derivation, from the same
# virtual sequence x̃ (Appendix B), with both mended:
#
# 1. Deviation. A walk's model misses 1/R of what the others did since their last visit before its own last one, and has
# all of its own steps since then. Steps since the last visit are its age A, mean a and mean square a₂; of another
# walk A' + A, A' independent. With (1 − 1/R) a factor of all of it, so that one walk does not deviate at all:
#
# mean ‖x̃ − x‖² ≤ 6η²( (1 − 1/R²) a σ² + s ζ² + s mean ‖∇f‖² ),   s = (1 − 1/R)²(3a₂ + 2a² + 2a)
#
# 2. Correlation. A node's difference from the mean gradient is compared with what it would be τ steps of the walk
# later, when the walk has forgotten where it was up to c λ*^τ ≤ 1/√T, c = √V/2. In between x̃ moves by M² ≤ 3η²(τσ²/R
# + τ²ζ² + τ² mean ‖∇f‖²), and a node's difference changes by at most δ times what the model moves.
#
# Put into the descent lemma, with every product split so that ¼ of mean ‖∇f‖² is left on the left side:
#
# average ≤ 4RF/(ηT) + ηL(2(σ² + 2ζ²)/R + 4√3 ζ(σ√(τ/R) + τζ))
# + η²( 48L²τ²ζ² + (12L² + 192δ²)((1 − 1/R²) a σ² + s ζ²) + 96δ²(τσ²/R + τ²ζ²) ) + 4(τR + 4)ζ²/T
#
# η ≤ min{ R/(16L), 1/√((48L² + 768δ²) s), 1/(√384 δτ) }
#
# As in the paper, how long a walk was away is taken to be independent of how large gradients were then. δ is how fast
# the difference of a node's gradient from the mean's changes: 2L at most, 0 where nodes' functions have the same
# curvature. Where all nodes have the same function (ζ² = 0), all that has τ or δ in it falls away.


def multi_walk_by_age(
    network: Network, problem: Problem, walks: int, iterations: int, step_size: float | None = None
) -> Bound | NotApplicable:
    """The bound with its constants, for Lemma 5's step size or for one's own.

    Args:
        network: From `theory.network(graph)`.
        problem: The task's constants.
        walks: R.
        iterations: T, over which ‖∇f‖² is averaged.
        step_size: One's own η; tuned as in Lemma 5 if left out.
    """
    proof = by_age_inequality(network, problem, walks, iterations)
    return proof.bound(iterations, step_size)


def by_age_inequality(network: Network, problem: Problem, walks: int, iterations: int) -> Inequality:
    """The inequality before the step size is tuned.

    Args:
        network: what `network(graph)` found.
        problem: F, L, σ², ζ² and δ of the task.
        walks: R, from 1 to the number of nodes.
        iterations: T, the number of completed local trainings.
    """
    check_walks(walks, network.nodes)
    check_iterations(iterations)
    L2, sigma2, zeta2 = problem.L**2, problem.sigma2, problem.zeta2
    tau = forgetting(network, iterations) if zeta2 else 0
    delta2 = problem.curvature_difference**2 if zeta2 else 0.0
    spread, apart = absence(network, walks)
    noise = 2 * (sigma2 + 2 * zeta2) / walks + 4 * sqrt(3 * zeta2) * (sqrt(sigma2 * tau / walks) + tau * sqrt(zeta2))
    deviation = (12 * L2 + 192 * delta2) * (apart * sigma2 + spread * zeta2)
    correlation = 48 * L2 * tau**2 * zeta2 + 96 * delta2 * (tau * sigma2 / walks + tau**2 * zeta2)
    return Inequality(
        "Multi-Walk by age",
        r0=4 * walks * problem.F,
        b=problem.L * noise,
        c=deviation + correlation,
        d=max(16 * problem.L / walks, sqrt((48 * L2 + 768 * delta2) * spread), sqrt(384 * delta2) * tau),
        mixing=4 * (tau * walks + 4) * zeta2 / iterations,
    )


def absence(network: Network, walks: int) -> tuple[float, float]:
    """s and (1 − 1/R²) a: what ζ² and σ² are multiplied with because walks are away from the aggregator."""
    a, a2 = network.age.mean, network.age.mean_square
    return (1 - 1 / walks) ** 2 * (3 * a2 + 2 * a**2 + 2 * a), (1 - 1 / walks**2) * a


def forgetting(network: Network, iterations: int) -> int:
    """τ: steps after which where a walk was says no more than 1/√T of where it is."""
    if network.modulus <= 0:
        return 1  # the next node does not depend on this one
    steps = log(sqrt(network.nodes) / 2 * sqrt(iterations)) / -log(network.modulus)
    return max(1, ceil(steps))


# The weighted walk and its jumps: where it is in the long run, and whose data count for how much.
#
# A walk whose visits go as π and whose step at v is η s_v follows, in the long run, the gradient of Σ_v π_v s_v f_v.
# With s_v = L̄/L_v and π_v = L_v/ΣL that is the mean of all f_v, so the weights change how it goes there and not where
# to. Jumps put π off the weights, and without the scale heavy nodes count for more: then it goes elsewhere (`bias`).

DENSE = 2000  # nodes; above this the gap is left out


@dataclass(frozen=True)
class WeightedWalkLaw:
    """What is known of a weighted walk on a graph."""

    stationary: tuple[float, ...]  # π: the share of its visits that each node gets
    counts: tuple[float, ...]  # V π_v s_v: for how much of a node each counts in what is minimized; 1 for all: f itself
    gap: float | None  # 1 − the second largest modulus: by that much a step forgets where the walk began
    longest_return: float  # steps on average until it is at the node again that it visits least
    longest_stay: float  # visits in a row, on average, at the node that it gets away from worst
    stays_at: int  # that node

    @property
    def bias(self) -> float:
        """How far from 1 what a node counts for is, at most: 0 where the walk minimizes the mean of all."""
        return max(abs(count - 1.0) for count in self.counts)


def weighted_walk(
    graph: GraphLike,
    weights: Sequence[float],
    jump: float = 0.0,
    jump_end: float = 0.5,
    longest_jump: int = 3,
    scaled: bool = True,
) -> WeightedWalkLaw:
    """The long run of `weighted_walk` with these settings.

    Args:
        graph: The graph that it moves on.
        weights: One for each node, its smoothness L_v.
        jump: p_J, how often it jumps.
        jump_end: p_d, how likely a jump ends after each of its hops.
        longest_jump: r, the most hops of a jump.
        scaled: Whether steps are scaled by the mean weight over the node's.
    """
    graph = as_graph(graph)
    if not 0 <= jump <= 1:
        raise misfit("jump", jump, "a number from 0 to 1", SpecError)
    chain = metropolis_hastings(graph, weights)
    if jump:
        chain = metropolis_with_jumps(graph, weights, jump, jump_end, longest_jump)
    law, given = stationary(chain), np.asarray(weights, dtype=np.float64)
    scale = given.mean() / given if scaled else np.ones(graph.nodes)
    stays = np.asarray(chain.matrix.diagonal())
    worst = int(stays.argmax())
    stay = 1.0 / (1.0 - float(stays[worst])) if stays[worst] < 1 else float("inf")
    counts = tuple(map(float, graph.nodes * law * scale))
    return WeightedWalkLaw(tuple(map(float, law)), counts, _gap(chain), float(1.0 / law.min()), stay, worst)


def _gap(chain: Chain) -> float | None:
    if chain.nodes > DENSE:
        return None
    moduli = np.sort(np.abs(np.linalg.eigvals(chain.matrix.toarray())))[::-1]
    return float(1.0 - moduli[1]) if len(moduli) > 1 else 1.0
