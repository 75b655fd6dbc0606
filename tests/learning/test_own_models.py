"""Models and losses that people bring: recurrent ones, regressions, targets of two dimensions, losses of one's own.

Each is trained and measured as a plain loop would do it, whatever form is chosen for it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import walktalk as wt
from tests.learning import plain
from walktalk.learning import OptimizerSpec, Task, Trainer, TrainingRows
from walktalk.learning.stacked import CompiledModel, SequentialModel, TracedModel

SAMPLES, STEPS, FEATURES, CLASSES = 30, 5, 4, 3
SERIES = plain.images(SAMPLES, STEPS, FEATURES)
LABELS, TAGS = plain.classes(SAMPLES, count=CLASSES), plain.classes(SAMPLES, STEPS, count=CLASSES)
NUMBERS, PAIRS = plain.images(SAMPLES, seed=5), plain.images(SAMPLES, 2, seed=6)
SERIES_OUT = plain.images(SAMPLES, STEPS, 2, seed=7)
ENTROPY, SQUARES = functional.cross_entropy, functional.mse_loss


class Recurrent(nn.Module):
    """Reads a series; says something at its end, or at every step (`tags`: classes right after the samples)."""

    def __init__(self, kind: str, outputs: int, every_step: bool = False, tags: bool = False, **more: object) -> None:
        super().__init__()
        self.reader = getattr(nn, kind)(FEATURES, 6, batch_first=True, **more)
        self.head = nn.Linear(6 * (2 if more.get("bidirectional") else 1), outputs)
        self.every_step, self.tags = every_step, tags

    def forward(self, x: Tensor) -> Tensor:
        read, _ = self.reader(x)
        out = self.head(read if self.every_step else read[:, -1])
        return out.transpose(1, 2) if self.tags else out


class Cell(nn.Module):
    """A cell and a loop of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(FEATURES, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        hidden = memory = x.new_zeros(len(x), 6)
        for step in range(x.shape[1]):
            hidden, memory = self.cell(x[:, step], (hidden, memory))
        return self.head(hidden)


def flat(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(STEPS * FEATURES, 8), nn.Tanh(), nn.Linear(8, outputs))


def of_a_normal_distribution(outputs: Tensor, targets: Tensor) -> Tensor:
    """torch looks whether a variance is below zero: no vmap gets past that."""
    return functional.gaussian_nll_loss(outputs[:, 0], targets, outputs[:, 1].exp())


def that_looks_at_numbers(outputs: Tensor, targets: Tensor) -> Tensor:
    return ENTROPY(outputs, targets) * (2.0 if outputs.sum().item() > 0 else 1.0)


CASES = {
    "RNN": (lambda: Recurrent("RNN", CLASSES), ENTROPY, LABELS, TracedModel),
    "LSTM": (lambda: Recurrent("LSTM", CLASSES), ENTROPY, LABELS, SequentialModel),
    "GRU": (lambda: Recurrent("GRU", CLASSES), ENTROPY, LABELS, TracedModel),
    "LSTM-both-ways": (
        lambda: Recurrent("LSTM", CLASSES, num_layers=2, bidirectional=True),
        ENTROPY,
        LABELS,
        SequentialModel,
    ),
    "LSTM-pairs": (lambda: Recurrent("LSTM", 2), SQUARES, PAIRS, SequentialModel),
    "GRU-series": (lambda: Recurrent("GRU", 2, every_step=True), SQUARES, SERIES_OUT, TracedModel),
    "GRU-tags": (lambda: Recurrent("GRU", CLASSES, every_step=True, tags=True), ENTROPY, TAGS, TracedModel),
    "LSTM-cell": (Cell, ENTROPY, LABELS, SequentialModel),
    "squares-of-pairs": (lambda: flat(2), SQUARES, PAIRS, CompiledModel),
    "squares-of-numbers": (lambda: nn.Sequential(flat(1), nn.Flatten(0)), SQUARES, NUMBERS, CompiledModel),
    "huber": (lambda: flat(2), nn.HuberLoss(delta=0.3), PAIRS, CompiledModel),
    "absolute": (lambda: flat(2), lambda o, t: (o - t).abs().sum(1).mean(), PAIRS, CompiledModel),
    "normal": (lambda: flat(2), of_a_normal_distribution, NUMBERS, CompiledModel),
    "looks": (lambda: flat(CLASSES), that_looks_at_numbers, LABELS, CompiledModel),
    "GRU-looks": (lambda: Recurrent("GRU", CLASSES), that_looks_at_numbers, LABELS, TracedModel),
}


@pytest.fixture(params=list(CASES))
def case(request):
    torch.manual_seed(0)
    make, loss, targets, form = CASES[request.param]
    module = make()
    parts = [np.arange(0, 12), np.arange(12, SAMPLES)]
    task = Task("own", module, loss, SERIES, targets, parts, (SERIES, targets), pretrained=True)
    return Trainer(task, batch_size=6, local_steps=3, optimizer=OptimizerSpec("sgd", lr=0.05)), form


def test_training_is_that_of_a_plain_loop(case):
    trainer, form = case
    assert type(trainer.model) is form
    models = plain.copies(trainer.task.model, 3)
    parts, keys = torch.tensor([0, 1, 1]), torch.tensor([3, 4, 5])
    rows = torch.stack([plain.numbers(one) for one in models])
    trained, _ = trainer.train(TrainingRows(rows, parts, keys, torch.full((3,), 0.05)))
    batches = trainer.data.sampler.batches(parts, keys, 3)
    for k, one in enumerate(models):
        steps = [(SERIES[batches[step, k]], trainer.data.targets[batches[step, k]]) for step in range(3)]
        plain.train(one, torch.optim.SGD(one.parameters(), lr=0.05), trainer.task.loss, steps)
    expected = torch.stack([plain.numbers(one) for one in models])
    assert (trained - rows).norm() > 1e-3  # something was learned
    plain.close(trained - rows, expected - rows, 1e-4)


def test_evaluation_is_that_of_a_plain_loop(case):
    """The loss over all samples at once; hits by argmax over the classes, where there are any."""
    trainer, _ = case
    models = plain.copies(trainer.task.model, 3)
    losses, accuracies = trainer.evaluate(torch.stack([plain.numbers(one) for one in models]))
    targets = trainer.data.targets
    for k, one in enumerate(models):
        with torch.no_grad():
            outputs = one.eval()(SERIES)
            assert float(losses[k]) == pytest.approx(float(trainer.task.loss(outputs, targets)), rel=1e-5)
        if targets.is_floating_point():
            assert math.isnan(accuracies[k])
        else:
            hits = (outputs.argmax(1) == targets).float().mean()
            assert float(accuracies[k]) == pytest.approx(float(hits), abs=1e-6)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_model_learns_in_a_run(kind):
    """Which of its first and last step is larger: a walk over three nodes learns it."""
    torch.manual_seed(0)
    series = torch.randn(300, STEPS, FEATURES)
    labels = (series[:, -1, 0] > series[:, 0, 0]).long()
    parts = [(series[k::4], labels[k::4]) for k in range(3)]
    task = wt.tasks.torch(Recurrent(kind, 2), ENTROPY, parts, test=(series[3::4], labels[3::4]))
    run = wt.train(
        task, wt.MultiWalk(walks=1), wt.graphs.complete(3), optimizer=wt.SGD(lr=0.02), stop=wt.Stop(iterations=400)
    )
    assert run.history["test_accuracy"].iloc[-1] > 0.7
    assert run.history["train_loss"].iloc[-1] < 0.6 * run.history["train_loss"].iloc[0]


def test_a_regression_finds_the_map():
    """Targets of two dimensions from a linear map: its weights come out, on every node's data together."""
    torch.manual_seed(0)
    inputs, wanted = torch.randn(120, 3), torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]])
    targets = inputs @ wanted.T
    parts = [(inputs[k::4], targets[k::4]) for k in range(4)]
    task = wt.tasks.torch(nn.Linear(3, 2, bias=False), SQUARES, parts, test=(inputs, targets))
    run = wt.train(
        task, wt.MultiWalk(walks=2), wt.graphs.complete(4), optimizer=wt.SGD(lr=0.1), stop=wt.Stop(iterations=200)
    )
    assert torch.allclose(run.model.weight, wanted, atol=0.01)
    assert run.history["test_accuracy"].isna().all()
