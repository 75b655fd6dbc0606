"""Orders of those that correct for unlike data: none depends on ζ, but for how they start.

In the form of `in_rounds`, for smooth losses that need not be convex and noise of variance σ² at every node.

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
"""

from __future__ import annotations

from math import sqrt

from walktalk.theory.problem import Bound, Network, Problem, in_rounds


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
