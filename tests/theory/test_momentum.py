"""Orders with a momentum or with delays: what they coincide with, and the steps of their derivation, computed."""

from __future__ import annotations

import numpy as np
import pytest
from tests.protocols.test_token_saga import Run

from walktalk import graphs, theory
from walktalk.protocols import FedBuff
from walktalk.runtimes.semantics import Stop

UNLIKE = theory.Problem(F=1.0, L=1.0, sigma2=0.5, zeta2=4.0)
ALIKE = theory.Problem(F=1.0, L=1.0, sigma2=0.5, zeta2=0.0)
NOISY = theory.Problem(F=1.0, L=1.0, sigma2=1.0, zeta2=0.0)
EIGENVALUES = (-0.6, -0.2, 0.3, 0.7, 0.95)
LONG = 6000  # rounds after which nothing is left


def energy(answer: np.ndarray) -> float:
    assert abs(answer[-1]) < 1e-6
    return float((answer**2).sum())


# -- what they coincide with ------------------------------------------------------------------------------------------


def test_without_momentum_they_are_what_they_are_made_of() -> None:
    for graph in (graphs.cycle(9), graphs.complete(8), graphs.star(7)):
        network = theory.network(graph)
        for ours, plain in (
            (theory.momentum_tracking_order(network, UNLIKE, 900, 0.0), theory.gradient_tracking_order),
            (theory.slowmo_order(network, UNLIKE, 900, outer_momentum=0.0), theory.d_psgd_order),
            (theory.fedopt_order(network, UNLIKE, 900, 0.0), theory.fedavg_order),
        ):
            assert ours.total == pytest.approx(plain(network, UNLIKE, 900).total)


def test_which_of_them_unlike_data_do_not_matter_to() -> None:
    network = theory.network(graphs.cycle(16))
    for order in (theory.momentum_tracking_order, theory.fedopt_order):
        assert order(network, UNLIKE, 1000).total == order(network, ALIKE, 1000).total
    for order in (theory.slowmo_order, theory.fedbuff_order):
        assert order(network, UNLIKE, 1000).total > order(network, ALIKE, 1000).total


def test_noise_is_all_that_counts_after_the_rounds_that_are_told() -> None:
    network, beta = theory.network(graphs.star(10)), 0.8
    heavy = theory.fedopt_order(network, NOISY, 10 * 10 / (1 - beta) ** 2, beta)
    assert heavy.start == pytest.approx(heavy.noise)
    heavy = theory.fedopt_order(network, NOISY, 10 * beta**4 * 10 / (1 - beta) ** 2, beta)
    assert heavy.deviation == pytest.approx(heavy.noise)
    for buffer in (1, 5):
        bound = theory.fedbuff_order(network, NOISY, buffer * 10**2 / buffer, buffer)
        assert bound.start == pytest.approx(bound.noise) == pytest.approx(bound.deviation)


# -- the steps of the derivation --------------------------------------------------------------------------------------


def tracked(eigenvalue: float, beta: float) -> np.ndarray:
    """What unit noise of one round leaves in a mode, with steps η = 1 − β: x ← λx − ηy, y ← λy + u⁺ − u."""
    x = y = u = 0.0
    seen = []
    for noise in (1.0, *[0.0] * LONG):
        after = beta * u + noise
        y, u = eigenvalue * y + after - u, after
        x = eigenvalue * x - (1 - beta) * y
        seen.append(x)
    return np.array(seen)


@pytest.mark.parametrize("beta", [0.5, 0.9])
@pytest.mark.parametrize("eigenvalue", EIGENVALUES)
def test_momenta_drive_models_apart_no_further_than_gradients_do(eigenvalue: float, beta: float) -> None:
    """With the same η' = η/(1 − β): what noise leaves, and the most that any frequency is amplified."""
    ours, plain = tracked(eigenvalue, beta), tracked(eigenvalue, 0.0)
    assert energy(ours) <= energy(plain)
    assert np.abs(np.fft.rfft(ours)).max() <= np.abs(np.fft.rfft(plain)).max() + 1e-9


def slow(eigenvalue: float, tau: int, beta: float, phase: int) -> np.ndarray:
    """What unit noise of one round of a stretch leaves, with η = 1 − β: τ times λ(x − ηn), then the slow step."""
    start = x = u = 0.0
    seen = []
    for t in range(LONG):
        x = eigenvalue * (x - (1 - beta) * (t == phase))
        if t % tau == tau - 1:
            u = beta * u + start - x
            start = x = start - u
        seen.append(x)
    return np.array(seen)


@pytest.mark.parametrize(("tau", "beta"), [(1, 0.6), (3, 0.6), (12, 0.6), (4, 0.9)])
@pytest.mark.parametrize("eigenvalue", [0.3, 0.7, 0.95])
def test_slow_steps_leave_less_of_the_noise_than_gossip_with_as_large_a_rate(
    eigenvalue: float, tau: int, beta: float
) -> None:
    """Of rounds at every place of a stretch."""
    ours = np.mean([energy(slow(eigenvalue, tau, beta, phase)) for phase in range(tau)])
    assert ours <= eigenvalue**2 / (1 - eigenvalue**2)


@pytest.mark.parametrize("beta", [0.5, 0.9])
def test_heavy_ball_leaves_what_sgd_with_the_larger_rate_does(beta: float) -> None:
    """On ½x²: E x² of SGD is η'/(2 − η'), the same up to β²/(1 − β) of its square; so V nodes share the noise."""
    for rate in (0.02, 0.005):
        x = u = 0.0
        seen = []
        for noise in (1.0, *[0.0] * LONG):
            u = beta * u + x + noise
            x -= rate * (1 - beta) * u
            seen.append(x)
        assert energy(np.array(seen)) == pytest.approx(rate / (2 - rate), rel=rate * (1 + beta**2 / (1 - beta)))


@pytest.mark.parametrize("late", [1, 4, 16])
def test_late_results_need_steps_that_are_smaller_by_as_much_and_leave_no_more_noise(late: int) -> None:
    """x ← x − η(x of τ steps ago + noise): stable below 2 sin(π/(4τ + 2)), which is π/(2τ) at length."""
    edge = 2 * np.sin(np.pi / (4 * late + 2))
    assert edge * late == pytest.approx(np.pi / 2, rel=0.6 / late)

    def answer(rate: float) -> np.ndarray:
        x = [0.0] * late + [-rate]
        for _ in range(LONG):
            x.append(x[-1] - rate * x[-1 - late])
        return np.array(x[late:])

    assert abs(answer(1.05 * edge)[-100:]).max() > 1.0 > abs(answer(0.95 * edge)[-100:]).max()
    small = 0.1 / late
    assert energy(answer(small)) == pytest.approx(small / 2, rel=2 * late * small)


def test_to_fedbuff_unlike_data_are_noise_that_its_buffer_shares() -> None:
    """With exact gradients at unlike nodes, as fast as each other: E‖x − x*‖² goes as η/B, however late they are."""
    left = {}
    for buffer, lr in ((1, 0.02), (4, 0.04)):
        squares = []
        for seed in range(2):
            protocol = FedBuff(buffer=buffer, staleness="constant")
            run = Run(protocol, graphs.star(6), Stop(iterations=900), lr=lr, seed=seed)
            for k in range(5, 21):
                run.advance(k / 20)
                squares.append(((run.output() - run.trainer.optimum()) ** 2).sum())
        left[buffer, lr] = np.mean(squares)
    assert left[4, 0.04] == pytest.approx(left[1, 0.02] / 2, rel=0.3)
