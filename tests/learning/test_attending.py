"""Attention of our own in models of `transformers`: it is torch's, and is taken where it fits.

The kernels need Triton: on a GPU (`make test-gpu`), or in its interpreter with TRITON_INTERPRET=1.
"""

import importlib.util
import os

import pytest
import torch
from torch.nn import functional

from walktalk.learning import kernels
from walktalk.learning.stacked import shared_base as attending

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
SHAPES = [(2, 3, 1, 20, 16, True), (1, 4, 2, 70, 24, True), (2, 2, 2, 9, 8, False), (1, 9, 3, 96, 64, True)]


def by_torch(q, k, v, scale, causal):
    found = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=True)
    return found.transpose(1, 2)


def check(shape, device, kind, tolerance):
    """Outputs and gradients beside those of torch in full precision."""
    torch.manual_seed(0)
    texts, asking, asked, tokens, size, causal = shape
    laid = [(texts, tokens, count, size) for count in (asking, asked, asked)]
    given = [torch.randn(one).to(device, kind).transpose(1, 2).requires_grad_() for one in laid]
    exact = [part.detach().float().requires_grad_() for part in given]
    out, expected = kernels.attend_in_groups(*given, 0.2, causal), by_torch(*exact, 0.2, causal)
    gradient = torch.randn(expected.shape).to(device, kind)
    pairs = zip(
        (out, *torch.autograd.grad(out, given, gradient)),
        (expected, *torch.autograd.grad(expected, exact, gradient.float())),
        strict=True,
    )
    for found, wanted in pairs:
        assert float((found.detach().float() - wanted.detach()).norm()) <= tolerance * float(wanted.detach().norm())


@pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter: TRITON_INTERPRET=1")
@pytest.mark.parametrize("shape", SHAPES)
def test_interpreted_it_is_torchs(shape):
    check(shape, "cpu", torch.float32, 1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("shape", SHAPES)
def test_on_a_gpu_it_is_torchs_but_for_16_bits(shape):
    check(shape, "cuda", torch.bfloat16, 0.01)


def test_what_fits():
    q, k = torch.empty(2, 4, 9, 8, dtype=torch.bfloat16), torch.empty(2, 2, 9, 8, dtype=torch.bfloat16)
    assert not kernels.can_attend_in_groups(q, k, k)  # not on a GPU
    if torch.cuda.is_available():
        q, k = q.cuda(), k.cuda()
        assert kernels.can_attend_in_groups(q, k, k)
        assert not kernels.can_attend_in_groups(q, k[:, :, :5], k[:, :, :5])
        assert not kernels.can_attend_in_groups(q.float(), k.float(), k.float())


def test_a_model_of_transformers_takes_it(monkeypatch):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = transformers.LlamaModel(transformers.LlamaConfig(vocab_size=9, num_key_value_heads=2, **small))
    tokens = torch.randint(0, 9, (2, 5))
    expected, calls = model(input_ids=tokens).last_hidden_state, []

    def counted(*given):
        calls.append(given)
        return by_torch(*given)

    monkeypatch.setattr(attending, "attend_in_groups", counted)
    monkeypatch.setattr(attending, "can_attend_in_groups", lambda q, k, v: True)
    assert attending.attend_by_ours(model)
    torch.testing.assert_close(model(input_ids=tokens).last_hidden_state, expected)
    assert [(given[4], given[0].shape[1], given[1].shape[1]) for given in calls] == [(True, 4, 2)] * 2
    masked = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
    torch.testing.assert_close(model(input_ids=tokens, attention_mask=masked).last_hidden_state, expected)
    attending.attend_by_theirs(model)
    torch.testing.assert_close(model(input_ids=tokens).last_hidden_state, expected)
    assert len(calls) == 2
    assert not attending.attend_by_ours(torch.nn.Linear(2, 2))
