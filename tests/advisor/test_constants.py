"""F, L, σ², ζ²: against the quadratic's exact facts, and their standard errors against repeated estimates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import walktalk as wt
from walktalk.advisor import Effort, estimate_constants
from walktalk.core.errors import ModelError
from walktalk.learning import Task, tasks

SMALL = Effort(points=2, batches=8, rounds=40, curved_nodes=4, descent=120)


def quadratic(**settings: float) -> Task:
    return tasks.quadratic(nodes=8, seed=3, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", [0.0, 2.0])
@pytest.mark.parametrize("heterogeneity", [0.0, 3.0])
def test_the_quadratics_facts(noise: float, heterogeneity: float) -> None:
    task = quadratic(noise=noise, heterogeneity=heterogeneity, smoothness=2.0, convexity=0.2)
    found = estimate_constants(task, batch_size=1, effort=SMALL)
    assert found.F.value == pytest.approx(task.facts["F"], rel=1e-3)
    assert found.L.value == pytest.approx(2.0, rel=1e-2)
    assert found.L.value <= 2.0 + found.L.error + 1e-6
    assert abs(found.sigma2.value - noise) <= 4 * found.sigma2.error + 1e-9
    assert found.zeta2.value == pytest.approx(heterogeneity, abs=1e-4)
    assert found.zeta2_mean.value == pytest.approx(task.facts["zeta2_mean"], abs=1e-4)
    assert found.zeta2.error == 0.0  # every sample was used
    assert found.f_best == pytest.approx(task.facts["f_star"], rel=1e-2, abs=1e-6)
    assert found.problem.sigma2 == found.sigma2.value


def test_a_batch_of_eight_has_an_eighth_of_the_variance() -> None:
    found = estimate_constants(quadratic(noise=4.0), batch_size=8, effort=SMALL)
    assert abs(found.sigma2.value - 0.5) <= 4 * found.sigma2.error


def test_standard_errors_are_honest_where_data_is_sampled() -> None:
    """Over many seeds, deviations in units of the standard error have about unit size."""
    task = quadratic(noise=2.0, heterogeneity=3.0, samples=200)
    effort = Effort(points=1, batches=6, rounds=5, curved_nodes=1, descent=4, most_samples=64)
    found = [estimate_constants(task, batch_size=1, seed=seed, effort=effort) for seed in range(24)]
    noise = np.array([(c.sigma2.value - 2.0) / c.sigma2.error for c in found])
    spread = np.array([(c.zeta2_mean.value - task.facts["zeta2_mean"]) / c.zeta2_mean.error for c in found])
    for deviations in (noise, spread):
        assert 0.4 < deviations.std() < 2.0
        assert abs(deviations.mean()) < 1.0
    assert all(c.zeta2.error > 0 for c in found)


def test_a_network_of_neurons() -> None:
    task = tasks.digits(nodes=5, alpha=0.5, seed=0)
    found = estimate_constants(task, effort=Effort(points=2, batches=3, rounds=8, curved_nodes=2, descent=20))
    assert found.f0 == pytest.approx(np.log(10), abs=0.2)
    assert 0 < found.F.value < found.f0 + 0.2
    assert found.L.value > 0
    assert found.sigma2.value > 0
    assert found.zeta2.value >= found.zeta2_mean.value > 0
    known = estimate_constants(
        task, lower_bound=0.0, effort=Effort(points=1, batches=2, rounds=2, curved_nodes=1, descent=4)
    )
    assert known.F.value == pytest.approx(known.f0)


def own(inputs: torch.Tensor, targets: torch.Tensor) -> Task:
    return tasks.torch(nn.Linear(2, 1), nn.functional.mse_loss, [(inputs, targets)] * 2)


def test_a_gradient_that_is_not_finite_is_one_clear_line() -> None:
    inputs = torch.ones(4, 2)
    inputs[1, 0] = 1e30  # a number still, but its square is none in 32 bits
    with pytest.raises(ModelError, match=r"task own: the gradient at node 0 is not finite; look for") as caught:
        estimate_constants(own(inputs, torch.zeros(4, 1)))
    assert "\n" not in str(caught.value)


def test_impossible_wishes() -> None:
    task = quadratic()
    with pytest.raises(ModelError, match=r"lower_bound: 1000000\.0 is above"):
        estimate_constants(task, lower_bound=1e6, effort=SMALL)
    with pytest.raises(ModelError, match="batch_size: 0"):
        estimate_constants(task, batch_size=0)
    frozen = tasks.torch(
        nn.Linear(2, 1).requires_grad_(False), nn.functional.mse_loss, [(torch.ones(4, 2), torch.ones(4, 1))]
    )
    with pytest.raises(ModelError, match="no parameter that requires a gradient"):
        estimate_constants(frozen)


def test_the_same_seed_gives_the_same_numbers() -> None:
    task = quadratic()
    effort = Effort(points=1, batches=2, rounds=4, curved_nodes=2, descent=4)
    assert estimate_constants(task, seed=5, effort=effort) == estimate_constants(task, seed=5, effort=effort)


class Once(torch.autograd.Function):
    """The square, which can be derived once only, as torch's CTC."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x**2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context, given):
        return 2 * context.saved_tensors[0] * given


def test_the_curvature_of_a_loss_that_can_be_derived_once_only_is_that_of_its_twin():
    """By differences of gradients; and a parameter that nothing depends on is no matter."""
    inputs = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    parts = [(inputs[k::4], (inputs @ torch.tensor([1.0, 2.0, 3.0]))[k::4, None]) for k in range(4)]
    found = []
    for square in (lambda x: x**2, Once.apply):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        model.unused = torch.nn.Parameter(torch.ones(2))
        task = wt.tasks.torch(model, lambda outputs, targets, f=square: f(outputs - targets).mean(), parts)
        found.append(estimate_constants(task, seed=0).L.value)
    assert found[1] == pytest.approx(found[0], rel=0.01)
