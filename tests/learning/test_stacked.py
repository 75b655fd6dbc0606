"""Stacked models give the gradients and the training of a plain loop, whatever the architecture and the width."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.learning import plain
from walktalk.core.errors import ModelError
from walktalk.learning import OptimizerSpec, Task, Trainer, TrainingRows
from walktalk.learning.stacked import (
    ChainModel,
    CompiledModel,
    RowLayout,
    SequentialModel,
    TracedModel,
    VmapModel,
    stack,
)
from walktalk.learning.stacked.choice import agrees
from walktalk.testing.bench.models import VisionTransformer

SAMPLES = 40


class Encoder(nn.Module):
    """torch's own transformer."""

    def __init__(self, **settings) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, **settings)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False)
        self.head = nn.Linear(8, 5)

    def forward(self, tokens):
        return self.head(self.encoder(self.words(tokens)).mean(1))


class Masked(nn.Module):
    """Attention by module, padding and causal masks, the batch second; parameters and constants without a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8, padding_idx=0)
        self.attention = nn.MultiheadAttention(8, 2)
        self.places = nn.Parameter(0.1 * torch.randn(6, 1, 8))
        self.register_buffer("ahead", torch.ones(6, 6).triu(1).bool(), persistent=False)
        self.register_buffer("later", torch.arange(6) > 0, persistent=False)
        self.head = nn.Linear(8, 5)

    def forward(self, tokens):
        x = self.words(tokens).transpose(0, 1) + self.places
        mixed, _ = self.attention(
            x, x, x, key_padding_mask=(tokens == 10) & self.later, attn_mask=self.ahead, need_weights=False
        )
        return self.head((x + mixed).mean(0))


class Recurrent(nn.Module):
    def __init__(self, kind, batch_first=True, **settings) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 4)
        self.inner = kind(4, 6, batch_first=batch_first, **settings)
        self.batch_first = batch_first
        self.head = nn.Linear(12 if settings.get("bidirectional") else 6, 5)

    def forward(self, tokens):
        x = self.words(tokens)
        outputs, last = self.inner(x if self.batch_first else x.transpose(0, 1))
        return self.head(outputs[:, -1] if self.batch_first else last[-1])


class Forward(nn.Module):
    """What people write in a forward: shapes, cuts, joins, a softmax by hand, something that only vmap knows."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(0.1 * torch.randn(1, 1, 12))
        self.scale = nn.Parameter(torch.ones(12))
        self.inner, self.head = nn.Linear(12, 24), nn.Linear(12, 5)

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.reshape(b, c, h * 2, w // 2).permute(0, 2, 1, 3).flatten(2)
        x = torch.cat([self.token.expand(b, -1, -1), x], dim=1) * self.scale
        first, second = self.inner(x).chunk(2, dim=-1)
        weights = torch.softmax(first @ second.transpose(-2, -1) / 12**0.5, dim=-1)
        x = x + weights.matmul(second)
        x = x - x.logsumexp(dim=-1).unsqueeze(-1) / 10
        return self.head(x[:, 0] + x[:, 1:].mean(dim=1) + torch.stack([x[:, 1], x[:, 2]]).sum(0))


FLAT, PICTURES = plain.images(SAMPLES, 12), plain.images(SAMPLES, 3, 8, 8)
TOKENS = plain.classes(SAMPLES, 6, seed=4, count=11)
LABELS = plain.classes(SAMPLES)

CASES = {
    "perceptron": (plain.perceptron, FLAT, ChainModel, 1e-5),
    "no-bias": (
        lambda: nn.Sequential(nn.Linear(12, 8, bias=False), nn.Tanh(), nn.Linear(8, 5)),
        FLAT,
        CompiledModel,
        1e-5,
    ),
    "batch-norm": (lambda: plain.ConvNet("batch"), PICTURES, SequentialModel, 1e-4),
    "group-norm": (lambda: plain.ConvNet("group"), PICTURES, SequentialModel, 1e-5),
    "logistic": (lambda: nn.Linear(12, 5), FLAT, ChainModel, 1e-5),
    "flattened": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), PICTURES, ChainModel, 1e-5),
    "vision": (lambda: VisionTransformer(8, 3, 2, 8, 2, 2), PICTURES, CompiledModel, 1e-4),
    "encoder": (lambda: Encoder(norm_first=True), TOKENS, CompiledModel, 1e-4),
    "encoder-after": (lambda: Encoder(norm_first=False, activation="gelu"), TOKENS, CompiledModel, 1e-4),
    "masked": (Masked, TOKENS, TracedModel, 1e-4),
    "gru": (lambda: Recurrent(nn.GRU, num_layers=2, bidirectional=True), TOKENS, TracedModel, 1e-4),
    "rnn": (lambda: Recurrent(nn.RNN, batch_first=False), TOKENS, TracedModel, 1e-4),
    "lstm": (lambda: Recurrent(nn.LSTM), TOKENS, SequentialModel, 1e-5),
    "forward": (Forward, PICTURES, TracedModel, 1e-4),
    "words": (plain.Words, TOKENS, CompiledModel, 1e-5),
    "weird": (plain.Weird, FLAT, TracedModel, 1e-5),
    "branching": (plain.Branching, FLAT, SequentialModel, 1e-5),
}


@pytest.fixture(params=list(CASES))
def case(request):
    torch.manual_seed(0)
    make, inputs, kind, tolerance = CASES[request.param]
    return make(), inputs, kind, tolerance


def rows_of(models: list[nn.Module]) -> torch.Tensor:
    return torch.stack([plain.numbers(m) for m in models])


@pytest.mark.parametrize("width", plain.WIDTHS)
def test_gradients_are_those_of_a_plain_loop(case, width):
    module, inputs, kind, tolerance = case
    model = stack(module, functional.cross_entropy, inputs, LABELS)
    assert type(model) is kind
    models = plain.copies(module, width)
    rows, layout = rows_of(models), model.layout
    picks = plain.classes(width, 16, seed=9, count=SAMPLES)
    keys = torch.arange(width)
    p = layout.parameter_width
    buffers = rows[:, p:].clone()
    wave = model.wave(layout.spread_out(rows[:, :p]), buffers, keys)
    found = layout.gather(wave(inputs[picks], LABELS[picks], 0), width)
    expected = [
        plain.gradient(m, functional.cross_entropy, inputs[i], LABELS[i]) for m, i in zip(models, picks, strict=True)
    ]
    plain.close(found, torch.stack(expected), tolerance)
    if buffers.numel():  # running statistics too
        plain.close(buffers, rows_of(models)[:, p:], 1e-5)


@pytest.mark.parametrize("width", plain.WIDTHS)
def test_five_steps_are_those_of_a_plain_loop(case, width):
    module, inputs, _, tolerance = case
    task = Task("test", module, functional.cross_entropy, inputs, LABELS, [np.arange(SAMPLES)], pretrained=True)
    spec = OptimizerSpec("sgd", lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    trainer = Trainer(task, batch_size=8, local_steps=5, optimizer=spec)
    models = plain.copies(module, width)
    keys, parts = torch.arange(width) * 1237 + 5, torch.zeros(width, dtype=torch.int64)
    trained, _ = trainer.train(TrainingRows(rows_of(models), parts, keys, torch.full((width,), 0.05)))
    batches = trainer.data.sampler.batches(parts, keys, 5)
    for k, one in enumerate(models):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
        plain.train(one, optimizer, functional.cross_entropy, [(inputs[b], LABELS[b]) for b in batches[:, k]])
    plain.close(trained, rows_of(models), tolerance)


@pytest.mark.parametrize("width", [1, 3])
def test_evaluation_outputs_are_those_of_the_plain_module(case, width):
    module, inputs, _, tolerance = case
    model = stack(module, functional.cross_entropy, inputs, LABELS)
    models = plain.copies(module, width)
    expected = torch.stack([m.eval()(inputs) for m in models]).detach()
    plain.close(model.outputs(rows_of(models), inputs), expected, tolerance)


def test_the_same_training_alone_and_in_a_wide_wave(case):
    module, inputs, kind, _ = case
    task = Task("test", module, functional.cross_entropy, inputs, LABELS, [np.arange(SAMPLES)], pretrained=True)
    trainer = Trainer(task, batch_size=8, local_steps=3, optimizer=OptimizerSpec("sgd", 0.05, 0.9, True))
    rows = rows_of(plain.copies(module, 17))
    keys, parts, lr = torch.arange(17) * 99, torch.zeros(17, dtype=torch.int64), torch.full((17,), 0.05)
    together, _ = trainer.train(TrainingRows(rows, parts, keys, lr))
    alone = torch.cat(
        [trainer.train(TrainingRows(rows[k : k + 1], parts[:1], keys[k : k + 1], lr[:1]))[0] for k in (0, 7, 16)]
    )
    if kind is SequentialModel:
        assert torch.equal(together[[0, 7, 16]], alone)
    plain.close(together[[0, 7, 16]], alone, 1e-5)  # batched products and grouped convolutions may sum in another order


def test_rates_that_differ_change_nothing_for_the_others(case):
    module, inputs, _, _ = case
    task = Task("test", module, functional.cross_entropy, inputs, LABELS, [np.arange(SAMPLES)], pretrained=True)
    trainer = Trainer(task, batch_size=8, local_steps=3, optimizer=OptimizerSpec("sgd", 0.05, 0.9, True))
    rows = rows_of(plain.copies(module, 3))
    keys, parts = torch.arange(3), torch.zeros(3, dtype=torch.int64)
    same, _ = trainer.train(TrainingRows(rows, parts, keys, torch.full((3,), 0.05)))
    mixed, _ = trainer.train(TrainingRows(rows, parts, keys, torch.tensor([0.05, 0.01, 0.5])))
    plain.close(mixed[:1], same[:1], 1e-6)
    assert not torch.allclose(mixed[1], same[1])


@pytest.mark.parametrize(
    ("kind", "make", "inputs"),
    [
        (TracedModel, lambda: plain.ConvNet("batch"), PICTURES),
        (TracedModel, lambda: plain.ConvNet("group"), PICTURES),
        (TracedModel, lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True), TOKENS),
        (TracedModel, lambda: VisionTransformer(8, 3, 2, 8, 2, 2), PICTURES),
        (TracedModel, lambda: Encoder(norm_first=True), TOKENS),
        (TracedModel, lambda: Encoder(norm_first=False, activation="gelu"), TOKENS),
        (TracedModel, plain.Words, TOKENS),
        (VmapModel, plain.Weird, FLAT),
    ],
    ids=["batch-norm", "group-norm", "lstm", "vision", "encoder", "encoder-after", "words", "vmap"],
)
def test_forms_that_only_a_gpu_takes(kind, make, inputs):
    """On a CPU these models are trained one after the other or written out, but the stacked forms give the same."""
    torch.manual_seed(0)
    module = make()
    assert agrees(kind(module, functional.cross_entropy), inputs, LABELS)


@pytest.mark.parametrize("make", [lambda: Recurrent(nn.LSTM), lambda: Recurrent(nn.RNN, nonlinearity="relu")])
def test_recurrent_layers_of_many_models(make):
    assert agrees(TracedModel(make(), functional.cross_entropy), TOKENS, LABELS)


def test_what_hangs_on_the_mode_is_traced_in_both():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(12, 5)

        def forward(self, x):
            return torch.tanh(self.head(x)) if self.training else self.head(x) * 2

    module = Two()
    model = stack(module, functional.cross_entropy, FLAT, LABELS)
    assert type(model) is CompiledModel
    row = model.layout.row(module).view(1, -1)
    assert torch.allclose(model.outputs(row, FLAT)[0], module.eval()(FLAT), atol=1e-6)


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 64), nn.Dropout(0.3), nn.ReLU(), nn.Linear(64, 5))


class Hidden(nn.Module):
    """Dropout that torch.fx cannot see as a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(functional.dropout(x, 0.5, self.training))


@pytest.mark.parametrize(("make", "kind"), [(dropping, CompiledModel), (Hidden, SequentialModel)])
def test_dropout_is_a_function_of_the_rows_key(make, kind):
    module = make()
    model = stack(module, functional.cross_entropy, FLAT, LABELS)
    assert type(model) is kind
    layout = model.layout
    rows = layout.row(module).expand(4, -1).clone()
    x, y = FLAT.expand(4, *FLAT.shape), LABELS.expand(4, SAMPLES)

    def gradients(keys, step=0, count=4):
        wave = model.wave(layout.spread_out(rows[:count]), rows[:count, :0], torch.tensor(keys))
        return layout.gather(wave(x[:count], y[:count], step).clone(), count)

    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = gradients([5, 6, 7, 5])
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)  # torch's own random numbers have no say
    plain.close(gradients([5], count=1), first[:1], 1e-6)
    plain.close(first[3:], first[:1], 1e-6)
    assert not torch.allclose(first[0], first[1])
    assert not torch.allclose(gradients([5, 6, 7, 5], step=1)[0], first[0])


def test_dropout_keeps_the_right_share():
    from walktalk.learning.stacked.tensors import Pass, StackedTensor
    from walktalk.learning.stacked.traced import dropout

    ones = torch.ones(3, 100, 400)
    out = dropout(
        StackedTensor(ones, 3), nn.Dropout(0.3), lambda _: ones, Pass({}, True, torch.tensor([1, 2, 3]))
    ).tensor
    kept = (out > 0).float().mean((1, 2))
    assert torch.allclose(kept, torch.full((3,), 0.7), atol=5 * (0.21 / 40_000) ** 0.5)
    assert torch.allclose(out[out > 0], torch.tensor(1 / 0.7))
    assert dropout(StackedTensor(ones, 3), nn.Dropout(0.3), lambda _: ones, Pass({}, False)).tensor is ones


@pytest.mark.parametrize(
    "loss",
    [functional.mse_loss, nn.HuberLoss(), functional.smooth_l1_loss, lambda o, t: ((o - t) ** 4).mean()],
    ids=["mse", "huber", "smooth", "own"],
)
def test_losses_of_every_kind(loss):
    module, targets = plain.perceptron(), plain.images(SAMPLES, 5, seed=8)
    model = stack(module, loss, FLAT, targets)
    models = plain.copies(module, 3)
    rows = rows_of(models)
    wave = model.wave(model.layout.spread_out(rows), rows[:, :0], torch.arange(3))
    found = model.layout.gather(wave(FLAT.expand(3, -1, -1), targets.expand(3, -1, -1), 0), 3)
    plain.close(found, torch.stack([plain.gradient(m, loss, FLAT, targets) for m in models]), 1e-5)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(label_smoothing=0.1),
        nn.CrossEntropyLoss(weight=torch.arange(1.0, 6.0)),
        functional.cross_entropy,
    ],
    ids=["smoothed", "weighted", "ignored"],
)
def test_cross_entropies_whose_mean_is_not_over_all_samples(loss):
    targets = LABELS.clone()
    if loss is functional.cross_entropy:
        targets[::3] = -100
    module = plain.perceptron()
    model = stack(module, loss, FLAT, targets)
    models = plain.copies(module, 3)
    rows = rows_of(models)
    picks = plain.classes(3, 16, seed=9, count=SAMPLES)
    wave = model.wave(model.layout.spread_out(rows), rows[:, :0], torch.arange(3))
    found = model.layout.gather(wave(FLAT[picks], targets[picks], 0), 3)
    expected = [plain.gradient(m, loss, FLAT[i], targets[i]) for m, i in zip(models, picks, strict=True)]
    plain.close(found, torch.stack(expected), 1e-5)


def test_shared_and_frozen_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(11, 6), nn.Linear(6, 11)
            self.head.weight = self.embed.weight
            self.frozen = nn.Linear(6, 6)
            self.frozen.requires_grad_(False)

        def forward(self, x):
            return self.head(self.frozen(self.embed(x)).mean(1))

    module, labels = Tied(), plain.classes(SAMPLES, count=11)
    model = stack(module, functional.cross_entropy, TOKENS, labels)
    assert model.layout.width == 11 * 6 + 11  # the embedding once, nothing frozen
    row = model.layout.row(module)
    wave = model.wave(model.layout.spread_out(row[None]), row[None, :0], torch.zeros(1, dtype=torch.int64))
    found = wave(TOKENS[None], labels[None], 0)
    module.train().zero_grad()
    functional.cross_entropy(module(TOKENS), labels).backward()
    expected = torch.cat([module.embed.weight.grad.reshape(-1), module.head.bias.grad])
    plain.close(found[None], expected[None], 1e-5)


def test_a_row_and_back():
    module = plain.ConvNet("batch")
    layout = RowLayout(module)
    row = torch.randn(layout.width)
    assert torch.equal(layout.row(layout.module(module, row)), row)
    rows = torch.randn(4, layout.parameter_width)
    assert torch.equal(layout.gather(layout.spread_out(rows), 4), rows)


def test_mistakes_are_told_before_any_training():
    with pytest.raises(ModelError, match="nothing to train"):
        stack(nn.ReLU(), functional.cross_entropy, FLAT, LABELS)
    with pytest.raises(ModelError, match="fails on its own data"):
        stack(nn.Linear(3, 5), functional.cross_entropy, FLAT, LABELS)
    with pytest.raises(ModelError, match=r"target size .* target=\[\"y\"\] for a column of a frame, unsqueeze"):
        stack(nn.Linear(12, 1), functional.mse_loss, FLAT, LABELS.float())
    with pytest.raises(ModelError, match="a target 4, but the model has 3 outputs"):
        stack(nn.Linear(12, 3), functional.cross_entropy, FLAT[LABELS.argsort()], LABELS.sort().values)
    with pytest.raises(ModelError, match="one number"):
        stack(nn.Linear(12, 5), nn.CrossEntropyLoss(reduction="none"), FLAT, LABELS)
    counting = nn.Sequential(nn.Linear(12, 5), nn.BatchNorm1d(5, momentum=None))
    with pytest.raises(ModelError, match="cumulative"):
        stack(counting, functional.cross_entropy, FLAT, LABELS)
