"""EvoNorm-S0: the formula of its paper, and many models at once."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from walktalk.core.errors import ModelError
from walktalk.learning.models import EvoNorm, resnet20
from walktalk.learning.stacked import SequentialModel, TracedModel
from walktalk.learning.stacked.choice import gradients_of, plain_gradient


@pytest.mark.parametrize(("channels", "groups", "slope"), [(6, 3, True), (4, 32, True), (8, 1, False)])
def test_it_is_the_formula_of_the_paper(channels, groups, slope):
    torch.manual_seed(0)
    layer, x = EvoNorm(channels, groups, slope=slope), torch.randn(3, channels, 4, 5)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    size = channels // min(groups, channels)
    expected = torch.empty_like(x)
    for b in range(len(x)):
        for c in range(channels):
            group = x[b, c // size * size : (c // size + 1) * size]
            v = layer.slope[c] if slope else 1.0
            bent = x[b, c] * torch.sigmoid(v * x[b, c])
            expected[b, c] = bent / (group.var(correction=0) + 1e-5).sqrt() * layer.weight[c] + layer.bias[c]
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("slope", [True, False])
def test_many_at_once_have_the_gradients_of_plain_ones(slope):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), EvoNorm(8, 4, slope=slope), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )
    x, y = torch.randn(3, 6, 3, 7, 7), torch.randint(0, 5, (3, 6))
    stacked = TracedModel(model, functional.cross_entropy)
    rows = stacked.layout.row(model) + 0.1 * torch.randn(3, stacked.layout.width)
    found = stacked.layout.gather(gradients_of(stacked, rows, x, y), 3)
    expected = torch.stack([plain_gradient(stacked, rows[k], x[k], y[k]) for k in range(3)])
    assert float((found - expected).norm()) < 1e-4 * float(expected.norm())
    plain = SequentialModel(model, functional.cross_entropy)
    torch.testing.assert_close(stacked.outputs(rows, x[0]), plain.outputs(rows, x[0]), rtol=1e-4, atol=1e-5)


def test_resnet20_with_it_keeps_no_statistics():
    model = resnet20(norm="evonorm")
    assert sum(p.numel() for p in model.parameters()) == 269_722  # as with batch norm
    assert not list(model.buffers())
    assert sum(isinstance(part, EvoNorm) for part in model.modules()) == 10
    TracedModel(model, functional.cross_entropy)  # can be stacked
    with pytest.raises(ModelError, match="allowed: batch, group, evonorm"):
        resnet20(norm="instance")


def test_groups_must_fit():
    with pytest.raises(ValueError, match="6 channels cannot be cut into 4 groups"):
        EvoNorm(6, 4)
