"""A GPU trains and measures what a CPU does: every form of a model, with and without graphs, every optimizer.

Small enough for a GPU that is none (`tests/support/pretended_gpu.py`, by `make test-kernels`), so that a tensor on the
wrong device, a wait inside of a CUDA graph or `.numpy()` in the wrong place shows on a machine without one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from walktalk.learning import Arithmetic, Extras, OptimizerSpec, Task, Trainer, TrainingRows, row_optimizer, tasks
from walktalk.learning.stacked import ChainModel, SequentialModel, TracedModel, choice
from walktalk.learning.training import forms
from walktalk.learning.training.forms import InPlaceTraining

from . import plain

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
SAMPLES, ROWS = 48, 3


class Texts(nn.Module):
    """An encoder of torch's, with dropout everywhere and norms in front."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, p, batch_first=True, norm_first=True)
        self.words, self.encoder, self.out = nn.Embedding(20, 8), nn.TransformerEncoder(layer, 1), nn.Linear(8, 10)

    def forward(self, x):
        return self.out(self.encoder(self.words(x)).mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module] = nn.GRU) -> None:
        super().__init__()
        self.inner, self.out = kind(4, 6, batch_first=True), nn.Linear(6, 10)

    def forward(self, x):
        return self.out(self.inner(x)[0][:, -1])


class Doubled(nn.Module):
    """What torch.fx cannot follow: only vmap can stack it."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(12, 10)

    def forward(self, x):
        return self.out(x * 2 if x.dim() > 0 else x)


def flat(layers: list[nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), *layers)


MODELS = {
    "perceptron": (lambda: flat([nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 10)]), (12,)),
    "norms": (lambda: flat([nn.Linear(12, 8), nn.LayerNorm(8), nn.Linear(8, 10), nn.Dropout(0.2)]), (12,)),
    "batch": (lambda: plain.ConvNet("batch"), (3, 8, 8)),
    "group": (lambda: plain.ConvNet("group"), (3, 8, 8)),
    "texts": (Texts, None),
    "gru": (Recurrent, (5, 4)),
    "lstm": (lambda: Recurrent(nn.LSTM), (5, 4)),
    "vmap": (Doubled, (12,)),
}


def task_of(name: str) -> Task:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    x = torch.randint(0, 20, (SAMPLES, 7)) if shape is None else torch.randn(SAMPLES, *shape)
    y = torch.randint(0, 3, (SAMPLES,))
    return Task(name, make(), functional.cross_entropy, x, y, np.array_split(np.arange(SAMPLES), 2), (x[:9], y[:9]))


def wave(made: Trainer, state: bool = False) -> tuple[torch.Tensor, ...]:
    rows = torch.stack([made.initial_row(k) for k in range(ROWS)])
    numbers = torch.arange(ROWS, device=made.device)
    given = rows, numbers % 2, numbers, torch.full((ROWS,), 0.05, device=made.device)
    return (*given, torch.zeros(ROWS, made.state_width, device=made.device)) if state else given


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    assert float((found.cpu() - expected).norm()) <= tolerance * float(expected.norm()) + 1e-6


@pytest.mark.parametrize("name", MODELS)
def test_a_wave_is_what_it_is_on_a_cpu(name):
    """Captured, then replayed; measured; and the model that comes out."""
    task = task_of(name)
    ours, other = (Trainer(task, batch_size=4, local_steps=2, device=device) for device in ("cuda", "cpu"))
    expected = other.train(TrainingRows(*wave(other)))[0]
    for _ in range(2):
        found = ours.train(TrainingRows(*wave(ours)))[0]
        close(found, expected, 1e-3)
    assert ours.forms.graphed is None or ours.forms.graphed.works
    measured, wanted = ours.measure(found), other.measure(found.cpu())
    for key, value in measured.items():
        close(value, wanted[key], 1e-3)
    module = ours.module(found[0])
    with torch.no_grad():
        close(module(task.inputs[:2].to("cuda")), other.module(found[0].cpu())(task.inputs[:2]), 1e-3)
    assert [line["samples"] for line in ours.by_node(found[0])] == [SAMPLES // 2] * 2


@pytest.mark.parametrize("name", ["perceptron", "batch", "texts"])
def test_in_16_bits_it_is_about_that(name):
    task = task_of(name)
    half = Trainer(task, batch_size=4, local_steps=2, device="cuda", arithmetic=Arithmetic("bf16", fused=False))
    other = Trainer(task, batch_size=4, local_steps=2)
    rows, *given = wave(other)
    expected, found = (
        other.train(TrainingRows(rows, *given))[0] - rows,
        half.train(TrainingRows(*wave(half)))[0].cpu() - rows,
    )
    assert float((found - expected).norm()) <= 0.1 * float(expected.norm())


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw", "adagrad", "nadam", "asgd"])
@pytest.mark.parametrize("row_by_row", [False, True])
def test_every_optimizer_and_its_state(monkeypatch, name, row_by_row):
    if row_by_row:
        monkeypatch.setattr(choice, "STACKED_UP_TO", 0)  # as if the model were large
    spec = OptimizerSpec("sgd", 0.05, 0.9, True, 1e-3) if name == "momentum" else OptimizerSpec(name, 0.05)
    made = [
        Trainer(task_of("perceptron"), batch_size=4, local_steps=2, optimizer=row_optimizer(spec, 1.0), device=device)
        for device in ("cuda", "cpu")
    ]
    assert isinstance(made[0].model, SequentialModel if row_by_row else ChainModel)
    (found, none), (expected, _) = (one.train(TrainingRows(*wave(one))) for one in made)
    close(found, expected, 1e-3)
    assert none is None
    results = [one.train(TrainingRows(*wave(one, True))) for one in made]
    for _ in range(2):  # with a state that is fresh, then with the one that came back
        (found, kept), (expected, wanted) = results
        close(found, expected, 1e-3)
        close(kept, wanted, 1e-3)
        results = [
            one.train(TrainingRows(rows, *wave(one)[1:], state))
            for one, (rows, state) in zip(made, results, strict=True)
        ]


@pytest.mark.parametrize(("gradient", "anchored"), [(False, True), (True, False)])
def test_what_is_out_of_the_ordinary(gradient, anchored):
    found = []
    for device in ("cuda", "cpu"):
        made = Trainer(task_of("batch"), batch_size=4, local_steps=2, device=device)
        given = wave(made)
        beside = given[0] * 0.01
        pulls = torch.full((ROWS,), 0.1, device=device) if anchored else None
        extras = Extras(3, gradient, beside, given[0] + 0.1 if anchored else None, pulls)
        found.append(made.train(TrainingRows(*given, None, extras))[0])
    close(found[0], found[1], 1e-3)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_large_rows_are_trained_where_they_lie(monkeypatch, momentum):
    """In a matrix, as if a few numbers were many; needs Triton."""
    pytest.importorskip("triton")
    monkeypatch.setattr(forms, "LARGE_ROW", 1)
    spec = OptimizerSpec("sgd", 0.05, momentum, momentum > 0)
    made = Trainer(task_of("batch"), batch_size=4, local_steps=1, optimizer=spec, device="cuda")
    assert isinstance(made.forms.in_place, InPlaceTraining)
    rows, parts, keys, lr = wave(made)
    models, states = torch.cat((rows, rows * 0)), torch.zeros(2 * ROWS, max(1, made.state_width), device="cuda")
    state = states[:ROWS].clone() if momentum else None
    expected, velocity = made.train(TrainingRows(rows, parts, keys, lr, state))
    for _ in range(2):
        columns = [keys, keys + ROWS, parts, keys, lr]
        assert made.train_in_place(models, columns, None, (states, keys, keys + ROWS) if momentum else None)
        close(models[ROWS:], expected.cpu(), 1e-4)
        if velocity is not None:
            close(states[ROWS:], velocity.cpu(), 1e-4)


def test_the_forms_are_those_of_a_gpu():
    kinds = {name: type(Trainer(task_of(name), batch_size=4, device="cuda").model).__name__ for name in MODELS}
    assert kinds == dict.fromkeys(MODELS, TracedModel.__name__) | {"perceptron": "ChainModel", "vmap": "VmapModel"}


class RowLengths(torch.optim.Optimizer):
    """Steps whose rows all have one length: it needs parameters in their own shapes."""

    def __init__(self, params: object, lr: float = 0.02) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                kept = self.state[parameter].setdefault("kept", torch.zeros_like(parameter))
                kept.mul_(0.9).add_(parameter.grad)
                parameter.add_(kept / (kept.norm(dim=1, keepdim=True) + 1e-3), alpha=-group["lr"])


PARTS = {
    "private": {"private": ("3",)},
    "a rate of its own": {"optimizers": {"3": 10.0}},
    "two optimizers": {"optimizers": {"*bias": OptimizerSpec("adam", lr=0.01)}},
    "one's own": {"optimizers": {"*weight": RowLengths, "*": torch.optim.Adam}},
}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", PARTS)
def test_parts_of_a_model_train_as_on_a_cpu(name, momentum):
    task = replace(task_of("perceptron"), **PARTS[name])
    how = {"batch_size": 4, "local_steps": 2, "optimizer": OptimizerSpec(lr=0.05, momentum=momentum)}
    both = [Trainer(task, device=device, **how) for device in ("cuda", "cpu")]
    given = [TrainingRows(*wave(each, state=each.state_width > 0)) for each in both]
    for _ in range(2):
        found = [each.train(one) for each, one in zip(both, given, strict=True)]
        close(found[0].rows, found[1].rows, 1e-3)
        if found[1].state is not None:
            close(found[0].state, found[1].state, 1e-3)
        given = [one._replace(rows=new.rows, state=new.state) for one, new in zip(given, found, strict=True)]
    states = [new.state[:2] if each.private is not None else None for each, new in zip(both, found, strict=True)]
    measured = [each.measure(new.rows, state) for each, new, state in zip(both, found, states, strict=True)]
    for key, value in measured[0].items():
        close(value, measured[1][key], 1e-3)
    parts = [each.private_parts(state) for each, state in zip(both, states, strict=True) if state is not None]
    for node in parts[0] if parts else ():
        close(parts[0][node]["3.bias"], parts[1][node]["3.bias"], 1e-3)


def test_samples_that_are_put_together_batch_by_batch_train_as_on_a_cpu():
    texts = [(torch.arange(2 + k % 5) + k, k % 2) for k in range(30)]

    def padded(batch):
        tokens = nn.utils.rnn.pad_sequence([text for text, _ in batch], batch_first=True)
        return tokens, torch.tensor([label for _, label in batch])

    torch.manual_seed(0)
    module = nn.Sequential(nn.EmbeddingBag(40, 4), nn.Linear(4, 2))
    task = tasks.torch(module, functional.cross_entropy, [texts[::2], texts[1::2]], test=texts[:9], collate=padded)
    both = [Trainer(task, batch_size=4, local_steps=2, device=device) for device in ("cuda", "cpu")]
    found = [each.train(TrainingRows(*wave(each))).rows for each in both]
    close(*found, 1e-3)
    for key, value in both[0].measure(found[0]).items():
        close(value, both[1].measure(found[1])[key], 1e-3)
