"""Walks or gossip, by the bounds: the crossover R, who wins on each axis, and the speed-up (Sections 4.1 to 4.3).

The dominant term √(FL(σ² + ζ²)/T) is the same for both, so per iteration the next term decides: R√(Vσ² + H²ζ²) against
V√(σ²/p + ζ²/p²). With iid data (ζ = 0) Multi-Walk wins for R below √(V/p), whatever the graph's H².
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, log1p, sqrt

from walktalk.core.errors import SpecError
from walktalk.core.settings import misfit
from walktalk.theory.problem import Bound, Network, Problem
from walktalk.theory.theorems import theorem1_order, theorem2_order

# From iterations to bits and to wall-clock time (Sections 4.2 and 4.3).
#
# One iteration is one completed local training. Bits: T = B/m for Multi-Walk and T = B/(m‖P‖₀) for gossip. Time: every
# walk (or node) acts as a Poisson process of rate 1/d, so T = RZ/d for Multi-Walk and T = VZ/d for gossip.

PAIRWISE_MESSAGES = 2.0  # the active node's model, and the passive node's answer


def messages_per_iteration(network: Network) -> dict[str, float]:
    """Models sent between different nodes per iteration, on average over a long run.

    A walk that stays put trains but sends nothing. Pairwise gossip, the default, is one exchange; with
    `neighbourhood` the active node exchanges with each neighbour; with `matrix` every off-diagonal entry of P is a
    message. Synchronous gossip sends along every edge both ways for V trainings.

    Args:
        network: what `network(graph)` found.
    """
    alone = network.nodes == 1
    return {
        "multi_walk": network.move_probability,
        "async_gossip": 0.0 if alone else PAIRWISE_MESSAGES,
        "async_gossip_neighbourhood": 2 * network.mean_degree,
        "async_gossip_matrix": float(network.nonzeros_off_diagonal),
        "sync_gossip": network.mean_degree,
        "centralized": 0.0,
    }


def paper_messages_per_iteration(network: Network) -> dict[str, float]:
    """Messages an iteration as the paper counts: one for Multi-Walk, ‖P‖₀ with its diagonal for gossip (Table 3).

    Args:
        network: what `network(graph)` found.
    """
    return {"multi_walk": 1.0, "async_gossip_matrix": float(network.nonzeros)}


def iterations_from_bits(bits: float, model_bits: float, messages: float) -> float:
    """T = B/(m · messages per iteration): how many iterations so many bits pay for.

    Args:
        bits: B, what may be sent in all.
        model_bits: m, the size of one model.
        messages: models sent per iteration, of `messages_per_iteration`.
    """
    _positive(bits=bits, model_bits=model_bits, messages=messages)
    return bits / (model_bits * messages)


def bits_from_iterations(iterations: float, model_bits: float, messages: float) -> float:
    """B = T · m · messages per iteration.

    Args:
        iterations: T, the number of completed local trainings.
        model_bits: m, the size of one model.
        messages: models sent per iteration, of `messages_per_iteration`.
    """
    return iterations * model_bits * messages


def iterations_from_time(seconds: float, active: float, d: float) -> float:
    """T = active · Z/d: `active` is R for Multi-Walk and V for gossip.

    Args:
        seconds: Z.
        active: how many train at the same time.
        d: mean seconds of one iteration of one of them.
    """
    _positive(seconds=seconds, active=active, d=d)
    return active * seconds / d


def time_from_iterations(iterations: float, active: float, d: float) -> float:
    """E[Z_T] = T d/active (Section 4.3).

    Args:
        iterations: T, the number of completed local trainings.
        active: how many train at the same time: R for Multi-Walk, V for gossip.
        d: mean seconds of one iteration of one of them.
    """
    _positive(active=active, d=d)
    return iterations * d / active


def time_deviation_bound(iterations: int, delta: float) -> float:
    """The chance, at most, that Z_T is off its mean by the share δ or more: 2 exp(−T(δ − ln(1 + δ))) (Section 4.3).

    Chernoff's bound on the sum of T exponential times. The paper has 2 exp(−δ²T/2): that holds for the lower tail,
    which is the thinner one, but not for the upper one.

    iterations: T, how many are done at Z_T. delta: δ, a share of the mean; 0 or more.
    """
    _positive(iterations=iterations)
    if not delta >= 0:
        raise misfit("delta", delta, "a number, 0 or more", SpecError)
    return min(1.0, 2 * exp(-iterations * (delta - log1p(delta))))


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise misfit(name, value, "a number above 0", SpecError)


def crossover_walks(network: Network, problem: Problem | None = None) -> float:
    """The R at which both second-largest terms are equal; below it Multi-Walk wins per iteration.

    Without a problem the data are taken as iid, and it is √(V/p) (the paper: p against V/R²). It may be above V: then
    Multi-Walk wins for every R.

    Args:
        network: From `theory.network(graph)`.
        problem: The task's constants; iid data if left out.
    """
    sigma2, zeta2 = (1.0, 0.0) if problem is None else (problem.sigma2, problem.zeta2)
    if sigma2 == zeta2 == 0:
        return inf
    gossip = network.nodes * sqrt(sigma2 / network.p + zeta2 / network.p**2)
    return gossip / sqrt(network.nodes * sigma2 + network.H2 * zeta2)


def on_axis(
    network: Network, problem: Problem, walks: int, axis: str, budget: float, model_bits: float = 1.0, d: float = 1.0
) -> dict[str, Bound]:
    """Both order expressions at the same budget of `iterations`, `bits` or `time` (Tables 3 and 4).

    Args:
        network: what `network(graph)` found.
        problem: F, L, σ² and ζ² of the task.
        walks: R, from 1 to the number of nodes.
        axis: iterations, bits or time.
        budget: how much of it there is: a count, bits, or seconds.
        model_bits: the size of one model, for bits.
        d: mean seconds of one iteration of a walk or node, for time.
    """
    messages = messages_per_iteration(network)
    counts: dict[str, Callable[[float, float], float]] = {
        "iterations": lambda active, sent: budget,
        "bits": lambda active, sent: iterations_from_bits(budget, model_bits, sent),
        "time": lambda active, sent: iterations_from_time(budget, active, d),
    }
    if axis not in counts:
        raise misfit("axis", axis, ", ".join(counts), SpecError)
    walk = counts[axis](walks, messages["multi_walk"])
    gossip = counts[axis](network.nodes, messages["async_gossip_matrix"])
    return {
        "multi_walk": theorem1_order(network, problem, walks, walk),
        "async_gossip_matrix": theorem2_order(network, problem, gossip),
    }


def winner(bounds: dict[str, Bound]) -> str:
    """The algorithm with the smaller bound.

    Args:
        bounds: by algorithm, as `on_axis` gives them.
    """
    return min(bounds, key=lambda name: bounds[name].total)


def iterations_to(target: float, order: Callable[[float], Bound]) -> float:
    """The T at which an order expression falls to the target: bounds fall with T, so by bisection."""
    if not target > 0:
        raise misfit("target", target, "a number above 0", SpecError)
    low, high = 1e-12, 1.0
    while order(high).total > target:
        high *= 2
    for _ in range(200):
        middle = sqrt(low * high)
        low, high = (middle, high) if order(middle).total > target else (low, middle)
    return high


def speed_up(network: Network, problem: Problem, walks: int, target: float) -> float:
    """Time to the target with one walk over time with R, by the order of Theorem 1: near R once the target is small.

    Args:
        network: From `theory.network(graph)`.
        problem: The task's constants.
        walks: R.
        target: Of the average of ‖∇f‖².
    """

    def time(count: int) -> float:
        iterations = iterations_to(target, lambda t: theorem1_order(network, problem, count, t))
        return time_from_iterations(iterations, count, d=1.0)

    return time(1) / time(walks)


def gossip_speed_up(network: Network, problem: Problem, target: float) -> float:
    """Time to the target with one walk over time with gossip on all V nodes: near V once the target is small.

    Args:
        network: From `theory.network(graph)`.
        problem: The task's constants.
        target: Of the average of ‖∇f‖².
    """
    walk = iterations_to(target, lambda t: theorem1_order(network, problem, 1, t))
    gossip = iterations_to(target, lambda t: theorem2_order(network, problem, t))
    return time_from_iterations(walk, 1, d=1.0) / time_from_iterations(gossip, network.nodes, d=1.0)
