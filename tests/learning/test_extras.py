"""What protocols may ask of a training: steps, corrections, anchors and gradients, against plain PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import walktalk as wt
from walktalk.learning import Extras, OptimizerSpec, Trainer, TrainingRows


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    generator = torch.Generator().manual_seed(0)
    data = [
        (torch.randn(30, 6, generator=generator), torch.randint(0, 3, (30,), generator=generator)) for _ in range(4)
    ]
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    task = wt.tasks.torch(model, nn.functional.cross_entropy, data)
    return Trainer(task, batch_size=8, local_steps=3, optimizer=OptimizerSpec(name="sgd", lr=0.1))


def plain(trainer: Trainer, row: torch.Tensor, part: int, key: int, steps: int):
    """The gradients along plain steps: a generator that is sent each step's change."""
    module = trainer.module(row).train()
    batches = trainer.data.sampler.batches(torch.tensor([part]), torch.tensor([key]), steps)
    for step in range(steps):
        module.zero_grad()
        inputs, targets = trainer.data.inputs[batches[step, 0]], trainer.data.targets[batches[step, 0]]
        trainer.task.loss(module(inputs), targets).backward()
        gradient = torch.cat([p.grad.flatten() for p in module.parameters()])
        change = yield gradient, torch.cat([p.detach().flatten() for p in module.parameters()])
        with torch.no_grad():
            torch.nn.utils.vector_to_parameters(
                torch.nn.utils.parameters_to_vector(module.parameters()) + change, module.parameters()
            )


def rows_of(trainer: Trainer, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = torch.stack([trainer.initial_row(k) for k in range(count)])
    return rows, torch.arange(count) % 4, torch.arange(count) * 31 + 7, torch.full((count,), 0.1)


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("anchored", [False, True])
def test_steps_corrections_and_anchors(trainer: Trainer, steps: int, corrected: bool, anchored: bool) -> None:
    rows, parts, keys, lr = rows_of(trainer, 3)
    generator = torch.Generator().manual_seed(1)
    correction = 0.3 * torch.randn(rows.shape, generator=generator) if corrected else None
    anchor = torch.randn(rows.shape, generator=generator) if anchored else None
    pulls = torch.tensor([0.5, 0.0, 2.0]) if anchored else None
    found, _ = trainer.train(TrainingRows(rows, parts, keys, lr, None, Extras(steps, False, correction, anchor, pulls)))
    for k in range(3):
        walk, change = plain(trainer, rows[k], int(parts[k]), int(keys[k]), steps), None
        x = rows[k].clone()
        for _ in range(steps):
            gradient, x = walk.send(change)
            total = gradient + (correction[k] if corrected else 0)
            total = total + (pulls[k] * (x - anchor[k]) if anchored else 0)
            change = -0.1 * total
        assert torch.allclose(found[k], x + change, atol=1e-5)


def test_a_gradient_is_the_mean_over_its_batches_and_moves_nothing(trainer: Trainer) -> None:
    rows, parts, keys, lr = rows_of(trainer, 3)
    found, _ = trainer.train(TrainingRows(rows, parts, keys, lr, None, Extras(4, gradient=True)))
    for k in range(3):
        walk, change, total = plain(trainer, rows[k], int(parts[k]), int(keys[k]), 4), None, torch.zeros(rows.shape[1])
        for _ in range(4):
            gradient, _ = walk.send(change)
            change = torch.zeros_like(gradient)
            total += gradient
        assert torch.allclose(found[k], total / 4, atol=1e-5)


def test_nothing_out_of_the_ordinary_is_the_ordinary(trainer: Trainer) -> None:
    rows, parts, keys, lr = rows_of(trainer, 3)
    usual, _ = trainer.train(TrainingRows(rows, parts, keys, lr))
    asked, _ = trainer.train(TrainingRows(rows, parts, keys, lr, None, Extras(trainer.local_steps)))
    assert torch.allclose(usual, asked, atol=1e-6)
