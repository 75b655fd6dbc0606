"""Orders of those that correct for unlike data, and of those with a momentum or with delays.

The first depend on ζ by how they start alone. In the form of `in_rounds`, for smooth losses that need not be convex and
noise of variance σ² at every node.

Gradient tracking (Koloskova, Lin, Stich, NeurIPS 2021), with c = 1 − min(λ_V, 0)²:

    √(FLσ²/(VK)) + (FLσ/(√p c K))^⅔ + FL/(pcK)

K-GT (Liu, Lin, Koloskova, Stich 2024, the theorem for losses that need not be convex), s local steps in a round, with
the two learning rates that it prescribes; of the rounds that it takes to ε the paper has σ²/(Vsε²) + σ/(p²√s ε^1.5) +
1/(p²ε), so a graph that mixes slowly costs it more than its predecessor, whose proof is finer:

    √(FLσ²/(VsK)) + (FLσ/(p²√s K))^⅔ + FL/(p²K)

D² by (I + W)/2, which is exact diffusion (Alghunaim, Yuan, IEEE TSP 2022), with p̃ = 1 − λ₂((I + W)/2)²; its noise is
all that counts after V³/p̃² rounds:

    √(FLσ²/(VK)) + (FLσ/(√p̃ K))^⅔ + FL/(p̃K)

EXTRA by the same theorem, in which it is the case A = I, C = (I + W)/2 where D² has A = C = (I + W)/2: the same
recursion with noise that is not averaged in the round that it comes in. Of a mode with the eigenvalue λ of (I + W)/2,
unit noise leaves 2/((1 − λ)(1 + 3λ)) in EXTRA and λ² times that in D² (a test computes both), so the order is D²'s.

SCAFFOLD with everybody in every round (Karimireddy et al., ICML 2020), on a star:

    √(FLσ²/(VK)) + FL/K

B-ary Tree Push-Pull, B ≥ 2 (You, Pu, NeurIPS 2024), with D the depth of its tree:

    √(FLσ²/(VK)) + (FLσ√(D/V)/K)^⅔ + FLD/K

Of the last, what the paper says is the first term, of its root's model, and that it is all that counts after Õ(V)
rounds (abstract, Theorem 2.1); there are more logarithms in there than here, where the powers of D are ours. In short:
the root moves by −(η/V) Σ_j g_j, where g_j is of D rounds ago at most, at an x_j that lags behind the root by at most D
rounds and is off by (η/V) Σ_k y_k along j's path. Those y are differences of gradients below them, 2σ² of noise for
every node below, drawn in different rounds for different k, and nodes below get fewer by B at every step: off by O(σ²
η²/V) altogether. A root that is 2D rounds further has moved by η²(2Dσ²/V + 4D²‖∇f‖²), so

    average ≤ O( F/(ηK) + Lησ²/V + L²η²Dσ²/V ),  η ≤ O(1/(LD))

and noise is all that counts after VD² rounds. The orders of the others are from memory of the papers.

Those with a momentum or with delays: momentum tracking, SlowMo, FedAvgM and FedBuff, with one local step. What the
papers prove is of another form or under other assumptions; these are our own, derived below, with the papers' abstracts
for what they may not contradict.

A momentum β makes of a step η one of η' = η/(1 − β) that is spread over 1/(1 − β) rounds. With z = x + β/(1 − β) (x −
x of before), z moves by −η' g(x) exactly, and ‖z − x‖² is at most β²η'² (σ²/(V(1 − β)) + ‖∇f‖² terms), so

    average ≤ O( F/(η'K) + Lη'σ²/V + L²η'²β²σ²/(V(1 − β)) ),    η' ≤ O((1 − β)/L)

which is heavy ball on V batches at once (Yan et al. 2018; Liu, Gao, Yin 2020). So FedOpt with optimizer `momentum`
(FedAvgM, Hsu, Qi, Brown 2019), with one local step:

    √(FLσ²/(VK)) + (FLσβ/(√(V(1 − β)) K))^⅔ + FL/((1 − β)K)

For Adam, Yogi and Adagrad Reddi et al. 2021 bound gradients themselves, by a constant that no `Problem` has.

Momentum tracking (Takezawa et al., TMLR 2023; the abstract: free of ζ for every β): the mean of all models is that
heavy ball. What nodes differ by goes, for an eigenvalue λ of W, through

    η (1 − z) / ((1 − λz)² (1 − βz)) = η' (1 − z)/(1 − λz)² · (1 − β)/(1 − βz)

where z is a delay by a round. The first is gradient tracking's with η', and the second is never more than 1 at any
frequency: noise drives models apart no further, and steps need be no smaller, than those of gradient tracking with η'
(a test computes it). So with c as there:

    √(FLσ²/(VK)) + (FL(σ/(√p c) + σβ/√(V(1 − β)))/K)^⅔ + FL max(1/(pc), 1/(1 − β))/K

SlowMo with a slow step every τ rounds and α = 1, without the exact average that its theorem (Wang et al., ICLR 2020)
is proved with: the mean is heavy ball over stretches of τ rounds, and what nodes differ by is, for an eigenvalue λ, one
over the curvature 1 − λ^τ, which leaves less of the noise than gossip with η' does (a test). With what D-PSGD has:

    √(FLσ²/(VK)) + (FL(σ/√p + ζ/p + σβ√(τ/(V(1 − β))))/K)^⅔ + FL max(1/p, 1 + τβ/(1 − β))/K

FedBuff (Nguyen et al., AISTATS 2022) of B results, each from any node with the same chance, as where trainings take
times of one exponential law; results are τ = V/B steps of the server late on average. Unlike data are noise then, and
what is late is off by η²(τ(σ² + ζ²)/B + τ²‖∇f‖²). With S = T/B steps:

    √(FL(σ² + ζ²)/T) + (FL√(τ(σ² + ζ²)/B)/S)^⅔ + FLτ/S

As Koloskova, Stich, Jaggi 2022 have it of asynchronous SGD, which is B = 1. Nguyen et al. bound gradients, and Toghani
and Uribe 2022 do not (abstract), with more of τ and ζ in it than here, since they take any order of results. Where some
are faster than others it comes to another optimum (a rest), of which no order speaks.
"""

from __future__ import annotations

from math import sqrt

from walktalk.theory.problem import Bound, Network, Problem, in_rounds

OURS = "ours"  # who has proved it


def _spread_in_time(problem: Problem, nodes: int, beta: float) -> float:
    """What a momentum leaves of the noise between x and where it is going."""
    return beta * sqrt(problem.sigma2 / (nodes * (1 - beta)))


def momentum_tracking_order(network: Network, problem: Problem, iterations: float, beta: float = 0.9) -> Bound:
    """Gossip in rounds that follows the mean of all momenta.

    Args:
        network: What `network(graph)` found.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
        beta: the momentum, from 0 to below 1.
    """
    c = 1 - min(network.smallest, 0.0) ** 2
    return in_rounds(
        "Takezawa et al. 2023",
        problem,
        iterations,
        active=network.nodes,
        spread=sqrt(problem.sigma2 / network.p) / c + _spread_in_time(problem, network.nodes, beta),
        slowness=max(1 / (network.p * c), 1 / (1 - beta)),
    )


def slowmo_order(
    network: Network, problem: Problem, iterations: float, rounds: int = 12, outer_momentum: float = 0.6
) -> Bound:
    """Gossip in rounds with a slow momentum step every few of them.

    Args:
        network: What `network(graph)` found.
        problem: F, L, σ² and ζ² of the task.
        iterations: T, completed local trainings.
        rounds: τ, of gossip between two slow steps.
        outer_momentum: β, from 0 to below 1.
    """
    apart = sqrt(problem.sigma2 / network.p) + sqrt(problem.zeta2) / network.p
    return in_rounds(
        OURS,
        problem,
        iterations,
        active=network.nodes,
        spread=apart + sqrt(rounds) * _spread_in_time(problem, network.nodes, outer_momentum),
        slowness=max(1 / network.p, 1 + rounds * outer_momentum / (1 - outer_momentum)),
    )


def fedopt_order(network: Network, problem: Problem, iterations: float, beta1: float = 0.9) -> Bound:
    """A server that takes momentum steps along the mean change of one local step: FedAvgM.

    Args:
        network: Of which only the number of nodes matters.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
        beta1: the momentum, from 0 to below 1.
    """
    spread = _spread_in_time(problem, network.nodes, beta1)
    return in_rounds(OURS, problem, iterations, active=network.nodes, spread=spread, slowness=1 / (1 - beta1))


def fedbuff_order(network: Network, problem: Problem, iterations: float, buffer: int = 4) -> Bound:
    """A server that takes a step for every few results, from nodes that are as fast as each other on average.

    Args:
        network: Of which only the number of nodes matters.
        problem: F, L, σ² and ζ² of the task; ζ² counts as noise.
        iterations: T, completed local trainings.
        buffer: B, results for a step.
    """
    variance, late = problem.sigma2 + problem.zeta2, max(network.nodes / buffer, 1.0)
    return in_rounds(
        OURS,
        problem,
        iterations,
        active=buffer,
        spread=sqrt(late * variance / buffer),
        slowness=late,
        variance=variance,
    )


def gradient_tracking_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """Gossip in rounds that follows the mean of all gradients.

    Args:
        network: What `network(graph)` found.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
    """
    c = 1 - min(network.smallest, 0.0) ** 2
    spread, slowness = sqrt(problem.sigma2 / network.p) / c, 1 / (network.p * c)
    return in_rounds(
        "Koloskova et al. 2021", problem, iterations, active=network.nodes, spread=spread, slowness=slowness
    )


def k_gt_order(network: Network, problem: Problem, iterations: float, steps: int = 1) -> Bound:
    """Gradient tracking with several local steps in a round.

    Args:
        network: What `network(graph)` found.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
        steps: s, local steps of a training.
    """
    variance = problem.sigma2 / steps
    spread, slowness = sqrt(variance) / network.p**2, 1 / network.p**2
    return in_rounds(
        "Liu et al. 2024",
        problem,
        iterations,
        active=network.nodes,
        spread=spread,
        slowness=slowness,
        variance=variance,
    )


def d2_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """Gossip in rounds by (I + W)/2 that takes back what averaging did to a model.

    Args:
        network: What `network(graph)` found.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
    """
    p = 1 - (1 - network.p_prime / 2) ** 2  # λ₂ of (I + W)/2 is half of the way from λ₂ to 1, none is negative
    spread = sqrt(problem.sigma2 / p)
    return in_rounds("Alghunaim & Yuan 2022", problem, iterations, active=network.nodes, spread=spread, slowness=1 / p)


def extra_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """Gossip in rounds that corrects each averaging by the one before: as D².

    Args:
        network: What `network(graph)` found.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
    """
    return d2_order(network, problem, iterations)


def scaffold_order(network: Network, problem: Problem, iterations: float) -> Bound:
    """A server, and corrections at every node.

    Args:
        network: Of which only the number of nodes matters.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
    """
    return in_rounds("Karimireddy et al. 2020", problem, iterations, active=network.nodes, spread=0.0, slowness=1.0)


def push_pull_order(network: Network, problem: Problem, iterations: float, branches: int = 2) -> Bound:
    """Parameters go down a tree, gradients up.

    Args:
        network: Of which only the number of nodes matters.
        problem: F, L, σ² and ζ² of the task; ζ² does not matter.
        iterations: T, completed local trainings.
        branches: B, children of a node, two or more.
    """
    depth = max(tree_depth(network.nodes, branches), 1)  # a root alone takes plain steps
    spread = sqrt(problem.sigma2 * depth / network.nodes)
    return in_rounds("You & Pu 2024", problem, iterations, active=network.nodes, spread=spread, slowness=depth)


def tree_depth(nodes: int, branches: int) -> int:
    """Links from the root to the last node of a tree that is filled level by level.

    Args:
        nodes: How many, the root included.
        branches: Children of a node.
    """
    depth, last = 0, nodes - 1
    while last > 0:
        depth, last = depth + 1, (last - 1) // branches
    return depth
