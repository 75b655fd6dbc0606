"""Small convolutions go by torch's kernel and not oneDNN's: by their size alone, and with the same numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.learning import plain
from walktalk.learning import Arithmetic, OptimizerSpec, Trainer, TrainingRows, tasks
from walktalk.learning.stacked import SequentialModel, cpu, sequential
from walktalk.learning.stacked.cpu import FEW_MULTIPLICATIONS, SmallConv2d, convolve_small_ones
from walktalk.testing.bench.models import small_cnn


def trainer(batch_size: int, **settings) -> Trainer:
    digits = tasks.digits(nodes=3, alpha=1.0)
    task = replace(digits, model=small_cnn(), inputs=digits.inputs.view(-1, 1, 8, 8), test=None)
    optimizer = OptimizerSpec("sgd", 0.05, momentum=0.9, nesterov=True)
    return Trainer(task, batch_size=batch_size, local_steps=2, optimizer=optimizer, **settings)


def calls_of(made: Trainer, monkeypatch) -> list[int]:
    """How many samples went through torch's kernel in each call of a training of one row."""
    seen = list[int]()

    def by_torch(x, *given):
        seen.append(len(x))
        return torch._C._nn.thnn_conv2d(x, *given)

    monkeypatch.setattr(cpu, "convolve_by_torch", by_torch)
    made.train(TrainingRows(made.initial_row(0)[None], torch.tensor([1]), torch.tensor([7]), torch.tensor([0.05])))
    return seen


def test_the_size_of_a_batch_and_of_the_layers_decides(monkeypatch):
    most = FEW_MULTIPLICATIONS // (16 * 8 * 9 * 16)
    assert trainer(8).model.images.small_up_to == most == 28
    assert calls_of(trainer(28), monkeypatch) == [28] * 4  # two layers, two steps
    assert calls_of(trainer(29), monkeypatch) == []
    assert calls_of(trainer(8, arithmetic=Arithmetic("bf16")), monkeypatch) == []


def test_gradients_are_those_of_onednn():
    made = trainer(8)
    assert isinstance(made.model, SequentialModel)
    made.model.module.eval()
    rows = torch.stack([made.initial_row(k) for k in range(2)])
    found = []
    for small_up_to in (made.model.images.small_up_to, 0):
        made.model.images.small_up_to = small_up_to
        found.append(
            made.train(TrainingRows(rows, torch.tensor([0, 1]), torch.tensor([3, 4]), torch.full((2,), 0.05)))[0]
        )
    assert not torch.equal(*found)  # other kernels: the last bits
    plain.close(found[0] - rows, found[1] - rows, 1e-5)


def test_a_row_has_the_same_bits_alone_and_in_any_wave():
    made = trainer(8)
    rows, parts, keys = torch.stack([made.initial_row(k) for k in range(5)]), torch.arange(5) % 3, torch.arange(5) * 11
    rates = torch.full((5,), 0.05)
    wave, _ = made.train(TrainingRows(rows, parts, keys, rates))
    for k in (0, 4):
        alone, _ = made.train(TrainingRows(rows[k : k + 1], parts[k : k + 1], keys[k : k + 1], rates[:1]))
        assert torch.equal(alone[0], wave[k])
    assert torch.equal(
        made.forms.stacked(TrainingRows(rows, parts, keys, rates)).rows, wave
    )  # the way of algorithms with extras


@pytest.mark.parametrize(("entering", "size", "more"), [(1, 8, {}), (3, 6, {"stride": 2}), (4, 5, {"bias": False})])
def test_a_layer_is_torchs_own(entering, size, more):
    torch.manual_seed(0)
    layer = nn.Conv2d(entering, 7, 3, padding=(1, 2), **more)
    x = torch.randn(4, entering, size, size + 1, requires_grad=True)
    leaves = [x, *layer.parameters()]
    expected = layer(x)
    of_torch = torch.autograd.grad(expected.square().sum(), leaves)
    assert convolve_small_ones(layer, x.detach()) == FEW_MULTIPLICATIONS // (
        layer.weight.numel() * expected[0, 0].numel()
    )
    assert type(layer) is SmallConv2d
    found = layer(x)
    plain.close(found, expected, 1e-6)
    for ours, right in zip(torch.autograd.grad(found.square().sum(), leaves), of_torch, strict=True):
        plain.close(ours[None], right[None], 1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(4, 256, 16),  # large
        nn.ConvTranspose2d(4, 4, 3),
        nn.Flatten(),
    ],
    ids=["groups", "dilation", "same", "circular", "large", "transposed", "none"],
)
def test_others_are_left_as_they_are(layer):
    before = type(layer)
    assert convolve_small_ones(layer, torch.randn(2, 4, 32, 32)) == 0
    assert type(layer) is before


def test_a_persons_own_model_keeps_its_layers():
    made = trainer(8)
    assert sum(type(part) is SmallConv2d for part in made.model.worker.modules()) == 2
    for module in (made.model.module, made.task.model, made.module(made.initial_row(0))):
        assert sum(type(part) is nn.Conv2d for part in module.modules()) == 2


@pytest.mark.parametrize("known", [True, False])
def test_gradients_by_the_engine_are_torchs(known, monkeypatch):
    assert sequential.is_known()  # by the torch at hand
    monkeypatch.setattr(sequential, "is_known", lambda: known)
    leaves = [torch.randn(3, generator=torch.Generator().manual_seed(k), requires_grad=True) for k in range(3)]

    def loss() -> torch.Tensor:
        return functional.mse_loss(leaves[0] * leaves[2], torch.ones(3))

    found = sequential.gradients_of_loss(loss(), leaves)
    expected = torch.autograd.grad(loss(), leaves, allow_unused=True)
    assert found[1] is None
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[2], expected[2])
    assert all(leaf.grad is None for leaf in leaves)
    with pytest.raises(RuntimeError, match="does not require grad"):
        sequential.gradients_of_loss(torch.ones(()), leaves)
