"""Walks or gossip, by the bounds: the crossover R, who wins on each axis, and the speed-up (Sections 4.1 to 4.3).

The dominant term √(FL(σ² + ζ²)/T) is the same for both, so per iteration the next term decides: R√(Vσ² + H²ζ²) against
V√(σ²/p + ζ²/p²). With iid data (ζ = 0) Multi-Walk wins for R below √(V/p), whatever the graph's H².
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, sqrt

from walktalk.errors import SpecError
from walktalk.theory.bound import Bound
from walktalk.theory.costs import (
    iterations_from_bits,
    iterations_from_time,
    messages_per_iteration,
    time_from_iterations,
)
from walktalk.theory.gossip import theorem2_order
from walktalk.theory.multi_walk import theorem1_order
from walktalk.theory.network import Network
from walktalk.theory.problem import Problem


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
        raise SpecError(f"axis = {axis!r} is unknown; choose from {', '.join(counts)}")
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
        raise SpecError(f"target = {target!r}, but it must be more than 0")
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
