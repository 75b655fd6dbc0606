"""The digits of a published comparison: sorted labels, scores that are compared within a batch, a warm-up."""

import importlib
import zlib

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from walktalk.core.errors import DataError
from walktalk.core.seeds import Seed
from walktalk.learning import tasks
from walktalk.learning.models import BatchSoftmaxConv
from walktalk.learning.stacked import TracedModel
from walktalk.learning.stacked.choice import agrees
from walktalk.learning.stacked.tensors import Pass, StackedTensor
from walktalk.learning.stacked.traced import channel_dropout
from walktalk.learning.tasks.images import sorted_and_cut, split_by_class


@pytest.fixture
def images(monkeypatch, tmp_path):
    """Small files in place of the published ones."""

    def idx(path):
        pixels, rng = "images" in path.name, np.random.default_rng(0)
        return rng.integers(0, 255, (120, 28, 28) if pixels else 120, dtype=np.uint8) % (255 if pixels else 10)

    there = importlib.import_module("walktalk.learning.tasks.images")
    monkeypatch.setattr(there, "locate", lambda data, folder: tmp_path)
    monkeypatch.setattr(there, "idx", idx)


def test_labels_are_sorted_and_cut():
    labels = np.array([2, 0, 1, 0, 2, 1])
    parts = sorted_and_cut(labels, 3)
    assert [labels[part].tolist() for part in parts] == [[0, 0], [1, 1], [2, 2]]


def test_an_even_split_is_cut_anew():
    labels = np.repeat(np.arange(10), 40)
    balanced, even = (split_by_class(labels, 7, Seed(0), 0.1, kind=kind) for kind in ("balanced", "even"))
    laid, cut = np.concatenate(even), np.cumsum([len(part) for part in balanced])
    for before, part, after in zip([0, *cut], balanced, cut, strict=False):  # the same nodes, each class after class
        assert np.array_equal(np.sort(laid[before:after]), part)
        assert np.all(np.diff(labels[laid[before:after]]) >= 0)
    assert {len(part) for part in even} == {57, 58}


def test_an_even_split_with_a_published_seed_is_that_of_the_published_code():
    """Expected: what distribute_data_dirichlet of epfml/relaysgd and its cut give, with seed 101, run once."""
    parts = split_by_class(np.arange(600) % 10, 12, Seed(0), 0.5, kind="even", split_seed=101)
    assert [part[:4].tolist() for part in parts[:3]] == [
        [411, 271, 81, 321],
        [161, 381, 241, 181],
        [114, 535, 406, 557],
    ]
    assert zlib.crc32(np.concatenate(parts).astype("<i8").tobytes()) == 3_972_196_540
    with pytest.raises(DataError, match="take split: even"):
        split_by_class(np.arange(600) % 10, 12, Seed(0), 0.5, kind="balanced", split_seed=101)


def test_scores_are_compared_within_a_batch_of_64(images):
    torch.manual_seed(0)
    model = BatchSoftmaxConv().eval()
    x = torch.randn(150, 1, 28, 28)
    out = model(x)
    plain = BatchSoftmaxConv(over_batch=False).eval()
    plain.load_state_dict(model.state_dict())
    expected = torch.cat([functional.log_softmax(piece, 0) for piece in plain(x).split(64)])
    assert torch.allclose(out, expected, atol=1e-6)
    assert sum(p.numel() for p in model.parameters()) == 21_840


def test_it_is_stacked_rightly(images):
    task = tasks.mnist(nodes=4, seed=0, softmax="batch")
    assert agrees(TracedModel(task.model, task.loss), task.inputs, task.targets)


def test_a_warm_up_is_everybodys_first_model(images):
    plain, warm = (tasks.build("mnist", 4, 0, softmax="batch", warm_up=steps) for steps in (0, 3))
    assert not plain.pretrained
    first, second = (dict(warm.initial(seed).named_parameters()) for seed in (1, 2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    again = tasks.build("mnist", 4, 0, softmax="batch", warm_up=3)
    assert torch.equal(again.initial(5).fc2.weight, first["fc2.weight"])
    torch.rand(3)  # whatever else has drawn from torch
    assert torch.equal(tasks.mnist(4, seed=0, softmax="batch", warm_up=3).model.fc2.weight, first["fc2.weight"])
    assert not torch.equal(tasks.mnist(4, seed=1, softmax="batch", warm_up=3).model.fc2.weight, first["fc2.weight"])
    assert not torch.equal(plain.model.fc2.weight, first["fc2.weight"])


@pytest.mark.parametrize("is_folded", [False, True])
def test_channels_are_dropped_whole(is_folded):
    ones = torch.ones(3, 50, 8, 2, 2)
    x = StackedTensor(ones.transpose(0, 1).reshape(50, 24, 2, 2), 3, True) if is_folded else StackedTensor(ones, 3)
    run = Pass({}, True, torch.tensor([1, 2, 3]))
    out = channel_dropout(x, nn.Dropout2d(0.5), lambda _: ones, run).stacked()
    kept = out[..., 0, 0]
    assert torch.equal(out, kept[..., None, None].expand_as(out))
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert 0.4 < float((kept > 0).float().mean()) < 0.6
    assert channel_dropout(x, nn.Dropout2d(0.5), lambda _: ones, Pass({}, False)) is x
