"""The form of nearly all orders in rounds: a start, the noise that all nodes share, and how far models come apart.

After K rounds in which so many nodes train once each (V of them, or k of Teleportation), T = VK:

    √(FLσ²/(VK)) + (FL spread/K)^⅔ + FL slowness/K
"""

from __future__ import annotations

from math import sqrt

from walktalk.theory.bound import Bound, check_iterations
from walktalk.theory.problem import Problem


def in_rounds(
    paper: str,
    problem: Problem,
    iterations: float,
    *,
    active: int,
    spread: float,
    slowness: float,
    variance: float | None = None,
) -> Bound:
    """An order of that form.

    Args:
        paper: Who has proved it.
        problem: F, L, σ² and ζ² of the task.
        iterations: T, completed local trainings.
        active: How many nodes train in a round.
        spread: What drives models apart, up to the step size.
        slowness: By how much steps must be smaller than 1/L.
        variance: Of one update, where it is not σ².
    """
    check_iterations(iterations)
    scale, rounds = problem.F * problem.L, iterations / active
    return Bound(
        paper,
        start=scale * slowness / rounds,
        mixing=0.0,
        noise=sqrt(scale * (problem.sigma2 if variance is None else variance) / iterations),
        deviation=(scale * spread / rounds) ** (2 / 3),
    )
