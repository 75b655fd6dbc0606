"""Whether images are given channels first or last: by weights and outputs, and with the same gradients."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.learning import plain
from walktalk.learning import Trainer, TrainingRows, tasks
from walktalk.learning.models import vgg11
from walktalk.learning.stacked.cpu import heavy_up_to

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("width", "first", "last"), [(0.25, 3, 8), (0.5, 8, 32), (1.0, 32, 200)])
def test_the_border_is_where_it_was_measured(width, first, last):
    """Up to `first` samples channels first are as fast or faster, from `last` on channels last are."""
    border = heavy_up_to(vgg11(width=width), IMAGES)
    assert first <= border < last


def test_a_step_is_that_of_a_plain_loop_on_both_sides_of_it():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 256, 3, 4), nn.ReLU(), nn.Conv2d(256, 256, 3, 4), nn.Flatten(), nn.Linear(1024, 3))
    y = plain.classes(4, count=3)
    up_to = heavy_up_to(net, IMAGES)
    assert 1 < up_to < 60
    for batch in (2, 60):
        trainer = Trainer(tasks.torch(net, functional.cross_entropy, [(IMAGES, y)]), batch_size=batch, local_steps=1)
        key = torch.tensor([5])
        trained, _ = trainer.train(
            TrainingRows(trainer.initial_row(0)[None], torch.tensor([0]), key, torch.tensor([0.1]))
        )
        places = trainer.data.sampler.batches(torch.tensor([0]), key, 1)[0, 0]
        layout = trainer.model.ordered(IMAGES[places])
        assert layout.is_contiguous() == (batch == 2)
        other = copy.deepcopy(net)
        functional.cross_entropy(other(IMAGES[places]), y[places]).backward()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter -= 0.1 * parameter.grad
        assert torch.allclose(trained[0], plain.numbers(other), atol=1e-5)
