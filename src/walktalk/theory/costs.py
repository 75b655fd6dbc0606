"""From iterations to bits and to wall-clock time (Sections 4.2 and 4.3).

One iteration is one completed local training. Bits: T = B/m for Multi-Walk and T = B/(m‖P‖₀) for gossip. Time: every
walk (or node) acts as a Poisson process of rate 1/d, so T = RZ/d for Multi-Walk and T = VZ/d for gossip.
"""

from __future__ import annotations

from math import exp, log1p

from walktalk.errors import SpecError
from walktalk.theory.network import Network

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
    """The same as the paper counts: one for Multi-Walk, ‖P‖₀ with its diagonal for gossip (Table 3).

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
        raise SpecError(f"delta = {delta!r}, but it must be 0 or more")
    return min(1.0, 2 * exp(-iterations * (delta - log1p(delta))))


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise SpecError(f"{name} = {value!r}, but it must be more than 0")
