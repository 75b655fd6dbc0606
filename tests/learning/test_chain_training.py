"""Perceptrons trained in memory that is laid out ahead: the same bytes as the stacked form, whatever came before."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.learning import plain
from walktalk.learning import OptimizerSpec, Task, Trainer, TrainingRows, tasks

SPECS = {
    "nesterov": OptimizerSpec("sgd", 0.05, 0.9, True, 0.01),
    "plain": OptimizerSpec("sgd", 0.05),
    "adam": OptimizerSpec("adam", 0.01),
    "rmsprop": OptimizerSpec("rmsprop", 0.01),
}


def perceptron(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def trainer_for(model: nn.Module, spec: OptimizerSpec, batch_size: int = 7) -> Trainer:
    features = next(model.parameters()).shape[1]
    task = Task(
        "own",
        model,
        functional.cross_entropy,
        plain.images(40, features),
        plain.classes(40, count=5),
        np.array_split(np.arange(40), 4),
    )
    return Trainer(task, batch_size=batch_size, local_steps=3, optimizer=spec)


def wave(trainer: Trainer, width: int, equal_rates: bool = True):
    rows = torch.stack([trainer.initial_row(seed) for seed in range(width)])
    lr = torch.full((width,), 0.05)
    lr[-1] = 0.05 if equal_rates else 0.02
    return rows, torch.arange(width) % trainer.task.nodes, torch.arange(width) * 7919 + 13, lr


@pytest.mark.parametrize("name", list(SPECS))
@pytest.mark.parametrize("sizes", [(12, 5), (12, 9, 5), (12, 16, 7, 5)], ids=str)
def test_the_same_bytes_as_the_stacked_form(sizes, name):
    trainer = trainer_for(perceptron(*sizes), SPECS[name])
    assert trainer.forms.chain is not None
    for width, equal_rates in ((3, True), (17, False), (1, True), (17, True), (2, False)):  # wider, narrower, again
        given = wave(trainer, width, equal_rates)
        state = torch.zeros(width, trainer.state_width) if width != 3 else None
        rows = TrainingRows(*given, state)
        for expected, found in zip(trainer.forms.stacked(rows), trainer.forms.chain(rows), strict=True):
            assert (expected is None) == (found is None)
            assert expected is None or torch.equal(expected, found)


@pytest.mark.parametrize("batch_size", [32, 7])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_has_the_same_bytes_alone_and_in_any_wave(threads, batch_size):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        trainer = Trainer(tasks.digits(nodes=20), batch_size=batch_size, optimizer=SPECS["nesterov"])
        everything = wave(trainer, 150)  # trained in pieces
        together, _ = trainer.train(TrainingRows(*everything))
        losses, _ = trainer.evaluate(everything[0])
        for first, last in ((0, 1), (3, 4), (149, 150), (1, 3), (2, 90)):
            alone, _ = trainer.train(TrainingRows(*(tensor[first:last] for tensor in everything)))
            assert torch.equal(alone, together[first:last])
            assert torch.equal(trainer.evaluate(everything[0][first:last])[0], losses[first:last])
    finally:
        torch.set_num_threads(before)


def test_what_was_trained_stays_when_the_memory_is_used_again():
    trainer = trainer_for(perceptron(12, 9, 5), SPECS["nesterov"])
    first, _ = trainer.train(TrainingRows(*wave(trainer, 4)))
    kept = first.clone()
    trainer.train(TrainingRows(*wave(trainer, 9)))
    assert torch.equal(first, kept)


def test_threads_may_share_a_trainer():
    trainer = trainer_for(perceptron(12, 9, 5), SPECS["nesterov"])
    given = wave(trainer, 6)
    expected, _ = trainer.train(TrainingRows(*given))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: trainer.train(TrainingRows(*given))[0], range(40)))
    assert all(torch.equal(one, expected) for one in found)


def test_a_wide_wave_is_trained_in_even_pieces(monkeypatch):
    trainer = trainer_for(perceptron(12, 9, 5), SPECS["plain"])
    monkeypatch.setattr("walktalk.learning.training.chain.ChainTraining.rows_at_once", 4)
    assert [trainer._at_once(rows) for rows in (1, 4, 5, 8, 9)] == [1, 4, 3, 4, 3]
