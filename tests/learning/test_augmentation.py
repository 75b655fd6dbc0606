"""Data sets that change their samples at random: drawn anew every time, and the same in every run."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

import walktalk as wt
from tests.learning import plain
from walktalk.learning import Trainer, TrainingRows, tasks
from walktalk.learning.samples import Column

X, Y = plain.images(40, 6), plain.classes(40, count=3)


class Noisy(Dataset):
    """Draws from one of the three places that transforms draw from."""

    def __init__(self, first: int, last: int, source: str) -> None:
        self.numbers, self.source, self.reads = range(first, last), source, 0

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        self.reads += 1
        drawn = {
            "torch": lambda: float(torch.randn(())),
            "numpy": lambda: float(np.random.normal()),  # noqa: NPY002
            "python": random.random,
            "nothing": lambda: 0.0,
        }
        return X[self.numbers[k]] + drawn[self.source](), int(Y[self.numbers[k]])


def noisy(source: str, **options) -> wt.Task:
    torch.manual_seed(0)
    return tasks.torch(
        nn.Linear(6, 3), functional.cross_entropy, [Noisy(0, 25, source), Noisy(25, 40, source)], **options
    )


@pytest.mark.parametrize("source", ["torch", "numpy", "python"])
def test_a_run_is_the_same_every_time(source):
    histories = []
    for disturbance in range(2):
        task = noisy(source)
        assert isinstance(task.inputs, Column)  # nobody wants an augmentation that is drawn once
        torch.manual_seed(disturbance)
        random.seed(disturbance)
        np.random.seed(disturbance)  # noqa: NPY002
        run = wt.train(task, wt.MultiWalk(walks=2), wt.graphs.path(2), stop=20, evaluate=5, device="cpu")
        histories.append(run.history["train_loss"].tolist())
    assert histories[0] == histories[1]


def test_what_others_draw_is_left_alone():
    def state():
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002

    columns = [noisy(source).inputs for source in ("torch", "numpy", "python")]
    before = state()
    for column in columns:
        column.for_training(torch.tensor([[3, 4]]), torch.tensor([5]), 0)
        column[:5]
    assert state() == before


def test_a_row_sees_the_same_alone_and_in_a_wave_and_something_new_in_every_step():
    trainer = Trainer(noisy("torch"), batch_size=4, local_steps=1)
    start, nodes, rate = trainer.initial_row(0), torch.tensor([0, 1, 1]), torch.full((3,), 0.1)
    keys = torch.tensor([5, 6, 7])
    together, _ = trainer.train(TrainingRows(start.repeat(3, 1), nodes, keys, rate))
    for k in range(3):
        alone, _ = trainer.train(TrainingRows(start[None], nodes[k : k + 1], keys[k : k + 1], rate[:1]))
        assert torch.allclose(alone[0], together[k], atol=1e-6)
    column, places = trainer.data.inputs, torch.tensor([[3, 3], [3, 3]])
    first, second = (column.for_training(places, torch.tensor([8, 9]), step) for step in range(2))
    assert len({float(x[0]) for x in (*first.flatten(0, 1), *second.flatten(0, 1))}) == 8


def test_each_sample_of_a_wave_is_read_once():
    parts = [Noisy(0, 25, "torch"), Noisy(25, 40, "torch")]
    trainer = Trainer(tasks.torch(nn.Linear(6, 3), functional.cross_entropy, parts), batch_size=4, local_steps=3)
    before = sum(part.reads for part in parts)
    rows = trainer.initial_row(0).repeat(2, 1)
    trainer.train(TrainingRows(rows, torch.tensor([0, 1]), torch.tensor([3, 4]), torch.tensor([0.1, 0.1])))
    assert sum(part.reads for part in parts) - before == 2 * 4 * 3


def test_what_is_not_random_is_read_into_memory_and_what_is_asked_for_is_done():
    assert isinstance(noisy("nothing").inputs, torch.Tensor)
    assert isinstance(noisy("torch", in_memory=True).inputs, torch.Tensor)
