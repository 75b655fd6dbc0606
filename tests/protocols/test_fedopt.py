"""FedOpt: the rule of each of its server's optimizers, what it coincides with, and where it ends on unlike data."""

from __future__ import annotations

import numpy as np
import pytest

import walktalk as wt
from tests.support.unlike import LR, run
from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.protocols import FedAvg, FedOpt
from walktalk.protocols.server.fedopt import TITLES, ServerOptimizer
from walktalk.transforms.rules import NUMBER_RULES

STAR = graphs.star(6)
SAMPLES = [1, 2, 3, 4, 5, 9]
every_optimizer = pytest.mark.parametrize("optimizer", TITLES)


def second(optimizer: ServerOptimizer, v: np.ndarray, change: np.ndarray, beta2: float) -> np.ndarray:
    """v of the paper's Algorithm 2."""
    if optimizer == "adagrad":
        return v + change**2
    if optimizer == "adam":
        return beta2 * v + (1 - beta2) * change**2
    return v - (1 - beta2) * change**2 * np.sign(v - change**2)


@every_optimizer
@pytest.mark.parametrize("weighted", [True, False])
def test_the_server_goes_by_its_optimizers_rule(optimizer: ServerOptimizer, weighted: bool) -> None:
    eta, beta1, beta2, tau = 0.2, 0.7, 0.9, 0.05
    protocol = FedOpt(
        steps=4, optimizer=optimizer, server_rate=eta, beta1=beta1, beta2=beta2, tau=tau, weighted=weighted
    )
    ended = run(protocol, STAR, 9, samples=SAMPLES)
    shares = np.array(SAMPLES) / sum(SAMPLES) if weighted else np.full(6, 1 / 6)
    x = ended.trainer.initial().double().numpy()
    m, v = np.zeros_like(x), np.full_like(x, tau**2)
    for _ in range(9):
        y = np.repeat(x[None], 6, 0)
        for _ in range(4):
            y = y - LR * ended.trainer.gradients(y)
        change = shares @ (y - x)
        if optimizer == "momentum":
            m = beta1 * m + change
            x = x + eta * m
        else:
            m, v = beta1 * m + (1 - beta1) * change, second(optimizer, v, change, beta2)
            x = x + eta * m / (np.sqrt(v) + tau)
    assert np.allclose(ended.output, x, atol=1e-4)
    assert np.allclose(ended.slots[0]["momentum"], m, atol=1e-4)
    if optimizer != "momentum":
        assert np.allclose(ended.slots[0]["second"], v, atol=1e-5)


def test_momentum_that_keeps_nothing_is_fedavg() -> None:
    ours = FedOpt(steps=3, optimizer="momentum", beta1=0.0, server_rate=1.0)
    ended, plain = (run(protocol, STAR, 6, samples=SAMPLES) for protocol in (ours, FedAvg(steps=3)))
    assert np.allclose(ended.output, plain.output, atol=1e-6)


@every_optimizer
def test_it_costs_what_fedavg_costs(optimizer: ServerOptimizer) -> None:
    assert run(FedOpt(optimizer=optimizer), STAR, 5).bits == run(FedAvg(), STAR, 5).bits


def test_a_large_tau_leaves_of_adam_a_momentum() -> None:
    """√v is as nothing beside τ, so that x moves by η/τ m."""
    tau, eta = 1e4, 0.3
    adam = FedOpt(steps=2, optimizer="adam", server_rate=eta * tau * 2, beta2=0.0, tau=tau)
    plain = FedOpt(steps=2, optimizer="momentum", server_rate=eta * 2 * (1 - 0.9))
    ended, other = (run(protocol, STAR, 8) for protocol in (adam, plain))
    assert np.allclose(ended.output, other.output, atol=1e-3)


@pytest.mark.parametrize(
    "protocol",
    [FedOpt(1), FedOpt(1, optimizer="yogi"), FedOpt(1, optimizer="adagrad", server_rate=1.0), FedOpt(1, 0, "momentum")],
    ids=lambda p: p.label,
)
def test_with_one_local_step_it_reaches_the_optimum_and_with_five_it_does_not(protocol: FedOpt) -> None:
    for steps, exact in ((1, True), (5, False)):
        same = {**protocol.settings, "steps": steps}
        ended = run(FedOpt(**same), STAR, 300)
        far = np.abs(ended.members - ended.trainer.optimum()).max()
        assert far < 1e-4 if exact else far > 1e-2


def test_a_tau_that_is_too_small_does_not_let_adam_rest() -> None:
    for tau, rests in ((1e-3, False), (0.1, True)):
        ended = run(FedOpt(1, server_rate=1.0, tau=tau), STAR, 1500)
        assert (np.abs(ended.members - ended.trainer.optimum()).max() < 1e-4) == rests


def test_it_says_which_of_them_it_is() -> None:
    assert [one.title for one in FedOpt.usual()] == ["FedAdam", "FedYogi", "FedAdagrad", "FedAvgM"]
    assert [one.label for one in FedOpt.usual()][:2] == ["fedopt-adam", "fedopt-yogi"]
    assert len({one.colour for one in FedOpt.usual()}) == 4


@pytest.mark.parametrize("name", list(NUMBER_RULES))
def test_what_is_part_of_a_rule_protects_from_nobody(name: str) -> None:
    with pytest.raises(SpecError, match="protects from nobody"):
        wt.screened(wt.AsyncGossip(), name)
