"""Passes that are written out have the gradients of plain loops, in every step and for every shape of batches."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.learning import plain
from walktalk.learning.stacked import CompiledModel, TracedModel, stack
from walktalk.learning.stacked.choice import gradients_of
from walktalk.testing.bench.models import CausalBlock, PreNormBlock

SAMPLES, WIDE = 24, 8
FLAT, SERIES = plain.images(SAMPLES, 12), plain.images(SAMPLES, 5, WIDE)
WORDS = plain.classes(SAMPLES, 6, seed=4, count=11)
LABELS = plain.classes(SAMPLES)


class Attending(nn.Module):
    """torch's own attention, with what its arguments allow."""

    def __init__(self, batch_first: bool, masked: str, bias: bool = True) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(11, WIDE), nn.Linear(WIDE, 5)
        self.inner = nn.MultiheadAttention(WIDE, 2, batch_first=batch_first, bias=bias)
        hidden = torch.ones(6, 6).triu(1)
        self.mask = {"none": None, "seen": hidden.bool(), "added": -3.0 * hidden}[masked]

    def forward(self, x):
        x = self.words(x)
        x = x if self.inner.batch_first else x.transpose(0, 1)
        y, _ = self.inner(x, x, x, attn_mask=self.mask, need_weights=False)
        y = y if self.inner.batch_first else y.transpose(0, 1)
        return self.head(y.flatten(1).reshape(-1, 6, WIDE).mean(1))


class Apart(nn.Module):
    """Parts of a tensor that go different ways, sums with repeated numbers, and a weight without a say."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, 5)
        self.place, self.unused = nn.Parameter(torch.randn(5, WIDE)), nn.Parameter(torch.randn(3))

    def forward(self, x):
        x = self.inner(x) + self.place
        y = functional.silu(x[:, 1:3].sum(1)) + torch.sigmoid(x)[:, -1] + x[:, 0]
        return self.head(y + x.mean(dim=1))


MODELS = {
    "layer-norm": (lambda: nn.Sequential(nn.Linear(12, WIDE), nn.LayerNorm(WIDE), nn.GELU(), nn.Linear(WIDE, 5)), FLAT),
    "norm-alone": (lambda: nn.Sequential(nn.LayerNorm(12, elementwise_affine=False), nn.Linear(12, 5)), FLAT),
    "norm-no-bias": (lambda: nn.Sequential(nn.LayerNorm(12, bias=False), nn.Linear(12, 5, bias=False)), FLAT),
    "relu-twice": (lambda: nn.Sequential(nn.ReLU(), nn.Linear(12, 7), nn.Tanh(), nn.ReLU(), nn.Linear(7, 5)), FLAT),
    "pre-norm": (lambda: nn.Sequential(PreNormBlock(WIDE, 2), nn.Flatten(), nn.Linear(5 * WIDE, 5)), SERIES),
    "causal": (lambda: nn.Sequential(CausalBlock(WIDE, 2), nn.Flatten(), nn.Linear(5 * WIDE, 5)), SERIES),
    "apart": (Apart, SERIES),
    "attention": (lambda: Attending(True, "none"), WORDS),
    "attention-seen": (lambda: Attending(True, "seen"), WORDS),
    "attention-second": (lambda: Attending(False, "added", bias=False), WORDS),
}


@pytest.fixture(params=list(MODELS))
def case(request):
    torch.manual_seed(0)
    make, inputs = MODELS[request.param]
    module = make()
    model = stack(module, functional.cross_entropy, inputs, LABELS)
    assert type(model) is CompiledModel
    return model, inputs


def test_every_step_has_the_gradients_of_a_plain_loop(case):
    """With other weights, other samples and batches of other sizes, in memory that was used before."""
    model, inputs = case
    for step, (width, batch) in enumerate(((3, 8), (1, 8), (3, 8), (3, 5), (1, 8))):
        models = plain.copies(model.module, width, seed=step)
        rows = torch.stack([plain.numbers(one) for one in models])
        picks = plain.classes(width, batch, seed=step, count=SAMPLES)
        found = model.layout.gather(gradients_of(model, rows, inputs[picks], LABELS[picks]), width)
        expected = [
            plain.gradient(one, functional.cross_entropy, inputs[pick], LABELS[pick])
            for one, pick in zip(models, picks, strict=True)
        ]
        plain.close(found, torch.stack(expected), 1e-4)


def test_what_an_optimizer_left_behind_is_gone_in_the_next_step():
    """A gradient's memory is written anew, that of weights without a say too."""
    torch.manual_seed(0)
    module = Apart()
    model = CompiledModel(module, functional.cross_entropy)
    row = model.layout.row(module)[None]
    wave = model.wave(model.layout.spread_out(row), row[:, :0], torch.zeros(1, dtype=torch.int64))
    first = wave(SERIES[None], LABELS[None], 0)
    kept = first.clone()
    first.fill_(7.0)
    assert torch.equal(wave(SERIES[None], LABELS[None], 0), kept)


def encoder(norm_first: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDE, 2, 16, dropout=0.3, batch_first=True, norm_first=norm_first)
    return nn.Sequential(
        nn.Embedding(11, WIDE),
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(6 * WIDE, 5),
    )


@pytest.mark.parametrize("norm_first", [True, False])
def test_masks_of_dropout_are_those_of_stacked_layers(norm_first):
    torch.manual_seed(0)
    module = encoder(norm_first)
    written, traced = (kind(module, functional.cross_entropy) for kind in (CompiledModel, TracedModel))
    rows = torch.stack([plain.numbers(one) for one in plain.copies(module, 2)])
    x, y, keys = WORDS.view(2, 12, 6), LABELS.view(2, 12), torch.tensor([5, 6])
    waves = [model.wave(model.layout.spread_out(rows), rows[:, :0], keys) for model in (written, traced)]
    for step in range(2):
        found, expected = (wave(x, y, step).clone() for wave in waves)
        plain.close(found[None], expected[None], 1e-4)
    assert not torch.allclose(waves[0](x, y, 0).clone(), waves[0](x, y, 1), rtol=1e-2)


def test_a_row_alone_has_the_numbers_that_it_has_in_a_wave():
    torch.manual_seed(0)
    module = nn.Sequential(encoder(True))
    model = CompiledModel(module, functional.cross_entropy)
    rows = torch.stack([plain.numbers(one) for one in plain.copies(module, 5)])
    x, y = WORDS[:12].expand(5, 12, 6), LABELS[:12].expand(5, 12)
    together = model.layout.gather(gradients_of(model, rows, x, y), 5)
    alone = [model.layout.gather(gradients_of(model, rows[k : k + 1], x[:1], y[:1]), 1).clone() for k in range(5)]
    plain.close(together, torch.cat(alone), 1e-6)


def test_weights_that_are_used_twice_are_left_to_others():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.Linear(12, 12), nn.Linear(12, 5)

        def forward(self, x):
            return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x)))))

    assert type(stack(Twice(), functional.cross_entropy, FLAT, LABELS)) is TracedModel


def test_two_threads_do_not_share_memory():
    torch.manual_seed(0)
    module, inputs = MODELS["layer-norm"][0](), FLAT
    model = CompiledModel(module, functional.cross_entropy)
    rows = torch.stack([plain.numbers(one) for one in plain.copies(module, 2)])
    expected = [gradients_of(model, rows[k : k + 1], inputs[None], LABELS[None]).clone() for k in range(2)]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(50):
            if not torch.equal(gradients_of(model, rows[k : k + 1], inputs[None], LABELS[None]), expected[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
