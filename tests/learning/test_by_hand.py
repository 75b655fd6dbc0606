"""Layers whose backward pass is written by hand have the outputs and gradients that autograd finds."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from walktalk.learning.optimizers import RowSGD, Spread, to_rows, to_vector
from walktalk.learning.stacked import RowLayout, recurrent
from walktalk.learning.stacked.attention import PackedAttention, SmallAttention, step_by_step
from walktalk.learning.stacked.model import sum_of_losses
from walktalk.learning.stacked.products import FoldedLinear
from walktalk.learning.stacked.tensors import Pass, drawn, masks, stream
from walktalk.learning.stacked.traced import Traced
from walktalk.transforms.codecs import hashed

ROWS, SAMPLES, TIMES, SIZE = 3, 4, 5, 6


def leaves(*shapes):
    random = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=random).requires_grad_() for shape in shapes]


def outcome(function, given):
    """The result, and the gradients of a sum in which every number counts differently."""
    found = function(*given)
    weights = torch.linspace(-1, 2, found.numel()).view_as(found)
    return found, *torch.autograd.grad((found * weights).sum(), [leaf for leaf in given if leaf.requires_grad])


def are_alike(one, other):
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_gru(bias, backwards):
    given = leaves((ROWS, SAMPLES, TIMES, 2), (ROWS, 3 * SIZE, 2), (ROWS, 3 * SIZE, SIZE), *[(ROWS, 3 * SIZE)] * 2)
    given = given if bias else given[:3]

    def by_hand(inputs, *weights):
        return recurrent.gru(inputs, weights[:2], weights[2:] or None, backwards)

    def by_autograd(inputs, *weights):
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        module = nn.GRU(2, SIZE, bias=bias, batch_first=True)
        states = []
        for k, x in enumerate(inputs.flip(2) if backwards else inputs):
            own = {name: weight[k] for name, weight in zip(names, weights, strict=False)}
            states.append(torch.func.functional_call(module, own, (x,))[0])
        return torch.stack(states).flip(2) if backwards else torch.stack(states)

    assert are_alike(outcome(by_hand, given), outcome(by_autograd, given))


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN, partial(nn.RNN, nonlinearity="relu")])
@pytest.mark.parametrize("settings", [{}, {"bias": False}])
@pytest.mark.parametrize("backwards", [False, True])
def test_recurrent_layers_and_the_cells_that_a_gpu_takes(monkeypatch, kind, settings, backwards):
    module = kind(2, SIZE, batch_first=True, **settings)
    inputs, *weights = leaves((ROWS, SAMPLES, TIMES, 2), *[(ROWS, *p.shape) for p in module.parameters()])
    named = dict(zip([name for name, _ in module.named_parameters()], weights, strict=True))

    def states(inputs, *weights):
        return recurrent.one_way(inputs, module, named.__getitem__, "l0", backwards)[0]

    by_hand = outcome(states, [inputs, *weights])
    monkeypatch.setattr(recurrent, "is_by_hand", lambda module, inputs: False)
    assert are_alike(by_hand, outcome(states, [inputs, *weights]))


@pytest.mark.parametrize("mask", ["none", "seen", "added"])
@pytest.mark.parametrize("drops", [False, True])
def test_attention(mask, drops):
    given = leaves((ROWS, 2, TIMES, SIZE), (ROWS, 2, 7, SIZE), (ROWS, 2, 7, SIZE))
    seen = torch.ones(TIMES, 7).tril(1).bool()
    masks = {"none": None, "seen": seen, "added": torch.linspace(-1, 1, TIMES * 7).view(TIMES, 7)}
    kept = 2.0 * (torch.rand(ROWS, 2, TIMES, 7, generator=torch.Generator().manual_seed(1)) > 0.5) if drops else None
    both = [
        outcome(lambda q, k, v, f=f: f(q, k, v, masks[mask], kept, 0.3), given)
        for f in (SmallAttention.apply, step_by_step)
    ]
    assert are_alike(*both)


@pytest.mark.parametrize("mask", ["none", "seen"])
@pytest.mark.parametrize("drops", [False, True])
def test_attention_of_one_tensor(mask, drops):
    """As a linear layer gives queries, keys and values: [W, B, T, 3, heads, d], seen in another order."""
    given = leaves((ROWS, SAMPLES, TIMES, 3, 2, SIZE))
    seen = torch.ones(TIMES, TIMES).tril().bool() if mask == "seen" else None
    dropped = torch.rand(ROWS * SAMPLES, 2, TIMES, TIMES, generator=torch.Generator().manual_seed(1)) > 0.5
    kept = 2.0 * dropped if drops else None

    def by_hand(qkv):
        return PackedAttention.apply(qkv.permute(0, 3, 1, 4, 2, 5), seen, kept, 0.3)

    def by_autograd(qkv):
        return step_by_step(*(qkv.permute(3, 0, 1, 4, 2, 5).flatten(1, 2)), seen, kept, 0.3)

    assert are_alike(outcome(by_hand, given), outcome(by_autograd, given))


@pytest.mark.parametrize("rows", [1, ROWS])
@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_that_does_what_a_layer_norm_left(rows, shift, bias):
    x, scale, weight, *more = leaves((rows, 9, SIZE), (rows, SIZE), (rows, 4, SIZE), (rows, SIZE), (rows, 4))
    given = [x, scale, weight, *more[:1] * shift, *more[1:] * bias]

    def parts(x, scale, weight, *rest):
        return x, scale, rest[0] if shift else None, weight, rest[-1] if bias else None

    def by_autograd(*given):
        x, scale, shift, weight, bias = parts(*given)
        x = x * scale.unsqueeze(1) + (0 if shift is None else shift.unsqueeze(1))
        return x @ weight.transpose(1, 2) + (0 if bias is None else bias.unsqueeze(1))

    assert are_alike(outcome(lambda *g: FoldedLinear.apply(*parts(*g)), given), outcome(by_autograd, given))


def test_a_dropout_that_is_added_to_something():
    run = Pass({}, True, torch.tensor([3, 5]), 1)
    given = leaves((2, 7, SIZE), (2, 7, SIZE))
    kept = masks(stream(run.keys, 1, 1), (2, 7, SIZE), 0.4, given[0])
    assert 0 < int((kept == 0).sum()) < kept.numel()
    assert are_alike(outcome(lambda x, y: run.added(x, y, 0.4), given), outcome(lambda x, y: x + y * kept, given))


def test_random_bits_are_the_same_on_a_cpu_and_elsewhere():
    keys = torch.tensor([3, -(2**62) + 7, 2**63 - 1])
    assert torch.equal(drawn(keys, 9), hashed(keys.view(-1, 1), torch.arange(9).view(1, -1), bits=64))


def test_a_row_has_the_same_loss_bits_in_every_wave():
    outputs, targets = (
        torch.randn(5, 7, 10, generator=torch.Generator().manual_seed(0)),
        torch.arange(35).view(5, 7) % 10,
    )

    def gradient(rows):
        leaf = outputs[:rows].clone().requires_grad_()
        return torch.autograd.grad(sum_of_losses(functional.cross_entropy, leaf, targets[:rows]), leaf)[0]

    assert torch.equal(gradient(5)[:1], gradient(1))
    assert torch.equal(gradient(5)[:3], gradient(3))


def test_sizes_are_looked_up_for_every_shape_of_inputs():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 2)

        def forward(self, x):
            count = x.shape[1]
            return self.inner(x.reshape(x.shape[0] * count, 3)).reshape(x.shape[0], count, 2).sum(1) / count

    module = Mean()
    layout, traced = RowLayout(module), Traced(module)
    run = Pass(layout.views(torch.stack([layout.row(module)] * 2), layout.parameters), True)
    for samples, times in ((4, 5), (4, 6), (4, 5), (3, 6)):
        inputs = torch.randn(2, samples, times, 3)
        assert torch.allclose(traced(inputs, run), torch.stack([module(x) for x in inputs]), atol=1e-6)
    assert all(len(known.left) < len(traced.training.nodes) for known in traced.training.plain.values())
    assert len(traced.training.plain) == 3


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_step_of_a_row_alone_rounds_as_in_a_wave(momentum):
    """To the last number: a row is no whole number of registers, and what is left over must not round otherwise."""
    settings, spread = RowSGD(momentum, momentum > 0, 5e-4), Spread(1, (30, 7))
    numbers = torch.randn(200, 3, 37, generator=torch.Generator().manual_seed(0))
    for weights, gradients, velocity in numbers:
        vectors = [to_vector(part[None], spread) for part in (weights, gradients)]
        wave = settings.begin(torch.tensor([0.05]), velocity[None] if momentum else None, spread)
        wave.step(*vectors)
        settings.step_alone(weights, gradients.clone(), velocity, 0.05)
        assert torch.equal(to_rows(vectors[0], spread)[0], weights)
        assert not momentum or torch.equal(wave.state()[0], velocity)
