"""What does not train is held once, never travels, and goes through a wave as one batch."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import walktalk as wt
from walktalk.core.errors import ModelError
from walktalk.learning import OptimizerSpec, Task, Trainer, TrainingRows, frozen_numbers
from walktalk.learning.stacked import SequentialModel, SharedBaseModel
from walktalk.learning.stacked.choice import gradients_of, plain_gradient, stack
from walktalk.learning.task import copy_on, sharing_copy, still_parts, with_trainable


def task_of(module: nn.Module, *shape: int, classes: int = 3) -> Task:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(60, *shape, generator=generator)
    targets = torch.randint(0, classes, (60,), generator=generator)
    parts = np.array_split(np.arange(60), 4)
    return Task("own", module, functional.cross_entropy, inputs, targets, parts, pretrained=True)


def backbone() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(144, 8),
        nn.Linear(8, 3),
    )


def test_only_what_trains_travels_and_a_frozen_norm_keeps_its_statistics():
    model = backbone()
    for parameter in model[:6].parameters():
        parameter.requires_grad = False
    trainer = Trainer(task_of(model, 1, 8, 8), batch_size=4, local_steps=3, optimizer=OptimizerSpec(lr=0.1))
    assert isinstance(trainer.model, SharedBaseModel)
    assert trainer.width == trainer.parameters == 8 * 3 + 3
    assert trainer.payload_bytes == 4 * 27
    rows = trainer.initial_row(0).repeat(2, 1)
    trained, _ = trainer.train(TrainingRows(rows, torch.arange(2), torch.arange(2), torch.full((2,), 0.1)))
    whole = trainer.module(trained[0]).state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, whole[name]) != name.startswith("6."), name
    whole["0.weight"].zero_()  # a person's own by now
    assert float(model[0].weight.abs().sum()) > 0


def test_the_base_is_held_once():
    model = with_trainable(backbone(), "6")
    trainer = Trainer(task_of(model, 1, 8, 8), batch_size=4)
    held = [
        trainer.template,
        trainer.model.worker,
        trainer.task.initial(0),
        sharing_copy(model),
        copy_on(model, torch.device("cpu")),
    ]
    assert {part[0].weight.data_ptr() for part in held} == {model[0].weight.data_ptr()}
    assert len({part[6].weight.data_ptr() for part in (model, trainer.template)}) == 2


@pytest.mark.parametrize("trainable", [["6"], ["5", "6.bias"], ["0", "1", "6"], ["1.bias", "6"]])
def test_joined_rows_have_plain_gradients(trainable):
    model = with_trainable(backbone(), trainable)
    task = task_of(model, 1, 8, 8)
    joined = stack(model, task.loss, task.inputs, task.targets)
    assert isinstance(joined, SharedBaseModel)
    joined.worker[4].p = model[4].p = 0.0
    rows = torch.stack([joined.layout.row(model)] * 3)
    rows[:, : joined.layout.parameter_width] *= torch.tensor([[1.0], [1.1], [0.9]])
    x, y = task.inputs[:15].view(3, 5, 1, 8, 8), task.targets[:15].view(3, 5)
    found = joined.layout.gather(gradients_of(joined, rows, x, y), 3)
    expected = torch.stack([plain_gradient(joined, rows[k], x[k], y[k]) for k in range(3)])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_a_row_drops_the_same_in_every_wave():
    model = with_trainable(backbone(), ["5", "6"])
    trainer = Trainer(task_of(model, 1, 8, 8), batch_size=4, local_steps=2)
    rows, numbers, rates = trainer.initial_row(0).repeat(3, 1), torch.arange(3), torch.full((3,), 0.1)
    together, _ = trainer.train(TrainingRows(rows, numbers, numbers, rates))
    alone = torch.cat(
        [
            trainer.train(TrainingRows(rows[k : k + 1], numbers[k : k + 1], numbers[k : k + 1], rates[:1]))[0]
            for k in range(3)
        ]
    )
    torch.testing.assert_close(together, alone)
    other, _ = trainer.train(TrainingRows(rows, numbers, numbers + 7, rates))
    assert not torch.allclose(together, other)


def test_what_mixes_samples_is_not_joined():
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.head = nn.Linear(5, 5), nn.Linear(5, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.base(x) - self.base(x).mean(0))

    model = with_trainable(Centred(), "head")
    task = task_of(model, 5)
    assert not isinstance(stack(model, task.loss, task.inputs, task.targets), SharedBaseModel)


def test_weights_outside_of_known_layers_are_trained_one_after_another():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.base = nn.Parameter(torch.ones(3)), nn.GRU(5, 3, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if float(x.sum()) > 1e9:  # looks at numbers: nothing can trace it
                return x
            return self.base(x)[0][:, -1] * self.scale

    model = with_trainable(Scaled(), "scale")
    task = task_of(model, 4, 5)
    assert isinstance(stack(model, task.loss, task.inputs, task.targets), SequentialModel)


def test_parts_by_name():
    model = backbone()
    chosen = with_trainable(model, ["*.bias", "6"])
    assert [n for n, p in chosen.named_parameters() if p.requires_grad] == [
        "0.bias",
        "1.bias",
        "5.bias",
        "6.weight",
        "6.bias",
    ]
    assert all(p.requires_grad for p in model.parameters())
    assert list(still_parts(chosen)) == []
    assert list(still_parts(with_trainable(model, "6"))) == ["1"]
    with pytest.raises(ModelError, match="no parameter is called 'nothing'"):
        with_trainable(model, "nothing")
    assert frozen_numbers(model) is None
    numbers, other = frozen_numbers(chosen), copy.deepcopy(chosen)
    with torch.no_grad():
        other[5].weight[0, 0] += 1.0
    assert numbers is not None
    assert numbers != frozen_numbers(other)


def test_an_own_task_says_what_trains():
    data = [(torch.randn(20, 6), torch.randint(0, 2, (20,))) for _ in range(3)]
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    task = wt.tasks.torch(module, functional.cross_entropy, data, trainable="2")
    run = wt.train(task, wt.AsyncGossip(), wt.graphs.complete(3), stop=wt.Stop(iterations=9), evaluate=3, batch_size=4)
    assert len(run.row) == 12
    assert torch.equal(run.model[0].weight, module[0].weight)
    assert not torch.equal(run.model[2].weight, module[2].weight)
    assert int(run.history["model_bits"].iloc[-1]) % (8 * 4 * 12) == 0
