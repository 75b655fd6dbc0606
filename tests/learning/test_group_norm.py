"""Group norm of images with their channels last: the numbers and gradients of torch's own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.learning import plain
from walktalk.learning import Trainer, tasks
from walktalk.learning.stacked import choice, stack
from walktalk.learning.stacked.cpu import (
    LastGroupNorm,
    group_norm_is_right,
    has_channels_last,
    norm_groups_by_ourselves,
)


def passes(norm: nn.Module, x: Tensor, gradient: Tensor) -> list[Tensor]:
    """Outputs, and gradients of the input, weight and bias."""
    x = x.detach().requires_grad_()
    out = norm(x)
    return [out.detach(), *torch.autograd.grad(out, [x, *norm.parameters()], gradient)]


@pytest.mark.parametrize(
    ("groups", "channels", "high", "wide"), [(1, 3, 5, 4), (2, 8, 6, 6), (8, 16, 9, 7), (6, 6, 3, 2)]
)
@pytest.mark.parametrize("mean", [0.0, 30.0], ids=["around zero", "far from zero"])
def test_it_is_torchs_own(groups, channels, high, wide, mean):
    torch.manual_seed(0)
    norm = nn.GroupNorm(groups, channels)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x, gradient = mean + torch.randn(4, channels, high, wide), torch.randn(4, channels, high, wide)
    exactly = copy.deepcopy(norm).double()
    norm_groups_by_ourselves(norm)
    assert type(norm) is LastGroupNorm
    last = x.contiguous(memory_format=torch.channels_last)
    assert has_channels_last(last)
    for incoming in (gradient, gradient.contiguous(memory_format=torch.channels_last), gradient[:1].expand_as(x)):
        wanted = passes(exactly, x.double(), incoming.double())
        for found, right in zip(passes(norm, last, incoming), wanted, strict=True):
            assert found.shape == right.shape
            assert (found.double() - right).norm() <= (1e-4 if mean else 1e-5) * right.norm()
    assert passes(norm, last, gradient)[0].is_contiguous(memory_format=torch.channels_last)


def test_elsewhere_torch_does_it():
    norm = nn.GroupNorm(2, 4)
    norm_groups_by_ourselves(norm)
    for x in (torch.randn(3, 4, 5, 5), torch.randn(3, 4), torch.randn(3, 4, 6), torch.randn(2, 4, 1, 1)):
        assert not has_channels_last(x)
        assert torch.equal(norm(x), functional.group_norm(x, 2, norm.weight, norm.bias))
    without = nn.GroupNorm(2, 4, affine=False)
    norm_groups_by_ourselves(without)
    assert type(without) is nn.GroupNorm


def model() -> nn.Module:
    torch.manual_seed(1)
    return plain.ConvNet("group")


def test_a_model_takes_it_and_has_the_right_gradients():
    x, y = plain.images(40, 3, 8, 8), plain.classes(40)
    stacked = stack(model(), functional.cross_entropy, x, y)
    assert sum(isinstance(part, LastGroupNorm) for part in stacked.worker.modules()) == 2
    assert not any(isinstance(part, LastGroupNorm) for part in stacked.module.modules())  # a person's own stays
    assert choice.agrees(stacked, x, y)


def test_a_wrong_one_is_not_taken(monkeypatch):
    monkeypatch.setattr("walktalk.learning.stacked.cpu.as_images", lambda pixels, like: 1.001 * like)
    monkeypatch.setattr("walktalk.learning.stacked.cpu.group_norm_is_right", group_norm_is_right.__wrapped__)
    x, y = plain.images(40, 3, 8, 8), plain.classes(40)
    stacked = stack(model(), functional.cross_entropy, x, y)
    assert not any(isinstance(part, LastGroupNorm) for part in stacked.worker.modules())


def test_a_resnet_takes_it():
    trainer = Trainer(tasks.random_images(2, 16, norm="group"))
    assert sum(isinstance(part, LastGroupNorm) for part in trainer.model.worker.modules()) == 19
    assert not any(isinstance(part, LastGroupNorm) for part in trainer.module(trainer.initial_row(0)).modules())
