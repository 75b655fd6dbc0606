"""Bring your own: what `tasks.torch` takes, and what it says to what it cannot take."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from walktalk.core.errors import DataError, ModelError
from walktalk.learning import Trainer, tasks

X, Y = torch.randn(12, 4), torch.arange(12) % 3


def module() -> nn.Module:
    return nn.Linear(4, 3)


@pytest.mark.parametrize(
    "partitions",
    [
        [(X[:5], Y[:5]), (X[5:], Y[5:])],
        [(X[:5].double().numpy(), Y[:5].numpy()), (X[5:].numpy(), Y[5:].numpy())],
        [TensorDataset(X[:5], Y[:5]), TensorDataset(X[5:], Y[5:])],
        [list(zip(X[:5], Y[:5], strict=True)), list(zip(X[5:], Y[5:], strict=True))],
        [(X[:5].tolist(), Y[:5].tolist()), [X[5:].tolist(), Y[5:].tolist()]],
    ],
    ids=["tensors", "arrays", "datasets", "pairs", "lists"],
)
def test_data_in_any_shape(partitions):
    task = tasks.torch(module(), functional.cross_entropy, partitions, test=(X, Y))
    assert [len(part) for part in task.parts] == [5, 7]
    assert torch.allclose(task.inputs, X)
    assert torch.equal(task.targets, Y)
    assert task.inputs.dtype == torch.float32
    assert np.array_equal(task.labels, Y.numpy())
    losses, accuracies = Trainer(task).evaluate(Trainer(task).initial_row(0)[None])
    assert torch.isfinite(losses).all()
    assert 0 <= float(accuracies[0]) <= 1


def test_a_list_of_two_samples_is_not_a_pair_of_columns():
    task = tasks.torch(module(), functional.cross_entropy, [[(X[0], Y[0]), (X[1], Y[1])], (X[2:], Y[2:])])
    assert [len(part) for part in task.parts] == [2, 10]
    assert torch.allclose(task.inputs, X)


def test_regression_has_no_accuracy():
    task = tasks.torch(nn.Linear(4, 2), functional.mse_loss, [(X, torch.randn(12, 2))], test=(X, torch.randn(12, 2)))
    assert task.labels is None
    losses, accuracies = Trainer(task).evaluate(Trainer(task).initial_row(0)[None])
    assert torch.isfinite(losses).all()
    assert torch.isnan(accuracies).all()


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        ([], "partitions: there is none"),
        ([(X, Y), (X[:0], Y[:0])], r"partitions\[1\]: it has no samples"),
        ([(X, Y), TensorDataset(X[:0], Y[:0])], r"partitions\[1\]: it has no samples"),
        ([(X, Y[:5])], r"partitions\[0\]: 12 inputs but 5 targets"),
        (
            [(X, Y), (torch.randn(3, 9), Y[:3])],
            r"partitions\[1\]: inputs of shape \(9,\), but partitions\[0\] has \(4,\)",
        ),
        ([7], r"partitions\[0\]: a pair \(inputs, targets\), .* is needed, not int"),
        ([[(X[0], Y[0]), (X[1][:2], Y[1]), (X[2], Y[2])]], "not .* pairs of equal shape"),
        ([(X, Y), (X.int(), Y)], r"partitions\[1\]: inputs are int32, but partitions\[0\] has float32"),
        ([(X, Y), (X, torch.randn(12, 2))], r"partitions\[1\]: targets of shape \(2,\), but partitions\[0\] has \(\)"),
    ],
)
def test_data_that_cannot_be(partitions, words):
    with pytest.raises(DataError, match=words):
        tasks.torch(module(), functional.cross_entropy, partitions)


def test_things_that_are_neither_model_nor_loss():
    with pytest.raises(ModelError, match=r"torch.nn.Module is needed, not str"):
        tasks.torch("model", functional.cross_entropy, [(X, Y)])
    with pytest.raises(ModelError, match="a function of"):
        tasks.torch(module(), "cross entropy", [(X, Y)])


def test_mistakes_that_only_the_model_shows():
    with pytest.raises(ModelError, match="fails on its own data"):
        Trainer(tasks.torch(nn.Linear(9, 3), functional.cross_entropy, [(X, Y)]))
    with pytest.raises(ModelError, match="a target 2, but the model has 2 outputs"):
        Trainer(tasks.torch(nn.Linear(4, 2), functional.cross_entropy, [(X, Y)]))
