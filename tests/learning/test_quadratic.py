"""The quadratic's constants are exact: each is checked against numbers computed from its data alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from walktalk.core.errors import DataError
from walktalk.learning import OptimizerSpec, Trainer, TrainingRows, tasks

SETTINGS = [
    {},
    {"noise": 0.0},
    {"heterogeneity": 0.0},
    {"noise": 7.5, "heterogeneity": 40.0, "smoothness": 3.0, "convexity": 0.5, "dimension": 6, "distance": 2.0},
    {"dimension": 1, "smoothness": 2.0, "convexity": 2.0},
]


def gradients(task, x: np.ndarray) -> list[np.ndarray]:
    """Per node: the gradient of every sample's loss at x, by autograd on the task's own model and loss."""
    model = task.initial(0)
    with torch.no_grad():
        model.x.copy_(torch.tensor(x))
    found = []
    for part in task.parts:
        rows = []
        for sample in part:
            model.zero_grad()
            task.loss(model(task.inputs[sample : sample + 1]), task.targets[sample : sample + 1]).backward()
            rows.append(model.x.grad.numpy().copy())
        found.append(np.stack(rows).astype(float))
    return found


def value(task, x: np.ndarray) -> float:
    """f(x): the mean over nodes of the mean over their samples."""
    model = task.initial(0)
    with torch.no_grad():
        model.x.copy_(torch.tensor(x))
        return float(np.mean([task.loss(model(task.inputs[p]), task.targets[p]).item() for p in task.parts]))


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(s) or "default")
def test_sigma_zeta_and_smoothness_are_exact(settings):
    task = tasks.quadratic(nodes=5, seed=1, samples=12, **settings)
    facts, start = task.facts, task.details["start"]
    for x in (start, start * 0.3):
        per_node = gradients(task, x)
        means = np.stack([g.mean(0) for g in per_node])
        noise = [((g - g.mean(0)) ** 2).sum(1).mean() for g in per_node]
        assert np.allclose(noise, facts["sigma2"], rtol=1e-4, atol=1e-6)
        spread = ((means - means.mean(0)) ** 2).sum(1)
        assert spread.max() == pytest.approx(facts["zeta2"], rel=1e-4, abs=1e-6)
        assert spread.mean() == pytest.approx(facts["zeta2_mean"], rel=1e-4, abs=1e-6)
        assert np.allclose(means.mean(0), task.details["quadratic"].gradient(x), rtol=1e-4, atol=1e-4)
    change = np.stack([g.mean(0) for g in gradients(task, start)]) - np.stack(
        [g.mean(0) for g in gradients(task, 0 * start)]
    )
    ratios = np.linalg.norm(change, axis=1) / np.linalg.norm(start)
    assert (ratios <= facts["L"] * (1 + 1e-5)).all()
    assert (ratios >= facts["mu"] * (1 - 1e-5)).all()


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(s) or "default")
def test_the_optimum_and_the_gap_are_exact(settings):
    task = tasks.quadratic(nodes=5, seed=1, samples=12, **settings)
    facts, known = task.facts, task.details["quadratic"]
    best, start = known.centres.mean(0), task.details["start"]
    assert value(task, best) == pytest.approx(facts["f_star"], rel=1e-5, abs=1e-6)
    assert np.allclose(known.gradient(best), 0, atol=1e-12)
    assert value(task, start) - value(task, best) == pytest.approx(facts["F"], rel=1e-4)
    rng = np.random.default_rng(0)
    for _ in range(5):
        assert value(task, best + 0.1 * rng.normal(size=best.shape)) >= facts["f_star"] - 1e-6


def test_every_run_starts_at_the_same_point():
    task = tasks.quadratic(nodes=3, seed=1, distance=10.0)
    assert torch.equal(task.initial(0).x, task.initial(99).x)
    assert np.linalg.norm(task.details["start"] - task.details["quadratic"].centres.mean(0)) == pytest.approx(10.0)


def test_plain_gradient_descent_goes_to_the_optimum():
    task = tasks.quadratic(nodes=4, seed=2, noise=0.0, heterogeneity=0.0, convexity=0.5)
    trainer = Trainer(task, batch_size=1, local_steps=100, optimizer=OptimizerSpec("sgd", 0.5))
    trained, _ = trainer.train(
        TrainingRows(trainer.initial_row(0)[None], torch.tensor([0]), torch.tensor([1]), torch.tensor([0.5]))
    )
    assert np.allclose(trained[0].numpy(), task.details["quadratic"].centres.mean(0), atol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"nodes": 0},
        {"dimension": 0},
        {"samples": 0},
        {"noise": -1.0},
        {"heterogeneity": -1.0},
        {"convexity": 0.0},
        {"convexity": 2.0, "smoothness": 1.0},
        {"distance": -1.0},
    ],
)
def test_impossible_settings(settings):
    with pytest.raises(DataError):
        tasks.quadratic(**settings)


def test_noise_needs_two_samples():
    """One sample a node has no noise: its mean is itself. The facts must say so, or be refused."""
    with pytest.raises(DataError, match="samples: 1"):
        tasks.quadratic(nodes=3, samples=1, noise=1.0)


def test_heterogeneity_needs_two_nodes():
    assert tasks.quadratic(nodes=1, heterogeneity=3.0).facts["zeta2"] == 0.0
