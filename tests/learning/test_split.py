"""Splitting one's own data: every sample once, in the form it came in."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

import walktalk as wt
from walktalk.core.errors import DataError
from walktalk.learning import partition

LABELS = np.arange(600) % 10
INPUTS = np.arange(600.0)
HOWS = ("iid", "dirichlet", "balanced_dirichlet", "shards", "labels")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    "data",
    [
        (INPUTS, LABELS),
        (torch.from_numpy(INPUTS), torch.from_numpy(LABELS)),
        pd.DataFrame({"x": INPUTS, "label": LABELS}),
        {"x": INPUTS, "label": LABELS},
        TensorDataset(torch.from_numpy(INPUTS), torch.from_numpy(LABELS)),
    ],
    ids=["arrays", "tensors", "frame", "columns", "dataset"],
)
def test_every_sample_goes_to_one_node_in_the_form_it_came_in(data, how):
    parts = wt.split(data, 6, how, seed=1)
    found = []
    for part in parts:
        if isinstance(data, TensorDataset):
            values = [float(part[k][0]) for k in range(len(part))]
        else:
            assert type(part) is type(data)
            values = np.asarray(part["x"] if not isinstance(part, tuple) else part[0]).tolist()
        assert values
        found += values
    assert sorted(found) == INPUTS.tolist()


def test_by_a_key_every_key_is_a_node():
    frame = pd.DataFrame({"hospital": ["north", "south", "east"] * 10, "x": np.arange(30.0), "y": np.arange(30) % 2})
    parts = wt.split(frame, by="hospital")
    assert list(parts) == ["east", "north", "south"]
    assert parts["south"]["x"].tolist() == list(range(1, 30, 3))
    assert list(parts["south"].columns) == ["x", "y"]
    keys = frame["hospital"].to_numpy()
    arrays = wt.split((frame["x"].to_numpy(), frame["y"].to_numpy()), by=keys)
    assert arrays["south"][0].tolist() == list(range(1, 30, 3))
    assert len(wt.split(frame, 2, by="hospital")) == 2
    assert list(wt.split(frame, ["a", "b"], target="y", how="dirichlet")) == ["a", "b"]


@settings(max_examples=40, deadline=None)
@given(nodes=st.integers(1, 34), alpha=st.sampled_from([0.05, 0.1, 1.0, 100.0]), seed=st.integers(0, 99))
def test_the_published_split_is_balanced(nodes, alpha, seed):
    labels = np.random.default_rng(seed).integers(0, 10, 4000)
    parts = partition.balanced_dirichlet(labels, nodes, alpha, seed)
    assert len(parts) == nodes
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(4000))
    for first in range(0, nodes, 10):
        sizes = [len(part) for part in parts[first : first + 10]]
        assert min(sizes) >= int(0.5 * sum(sizes) / len(sizes))


def test_a_smaller_alpha_leaves_fewer_classes():
    def classes(alpha):
        return np.mean([len(np.unique(LABELS[part])) for part in partition.balanced_dirichlet(LABELS, 16, alpha, 0)])

    assert classes(0.01) < 3.5 < classes(1.0) < 9 < classes(100.0)


def test_shards_hold_few_classes():
    parts = partition.shards(LABELS, 10, 2, 0)
    assert {len(part) for part in parts} == {60}
    assert max(len(np.unique(LABELS[part])) for part in parts) <= 4
    assert max(len(np.unique(LABELS[part])) for part in partition.shards(LABELS, 10, 1, 0)) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"data": (INPUTS, LABELS)}, "nodes: how many"),
        ({"data": (INPUTS, LABELS), "nodes": 3, "how": "fair"}, "how: 'fair' is not possible; allowed: iid, dirichlet"),
        ({"data": (INPUTS, LABELS), "by": "hospital"}, "no column 'hospital'; its columns have no names"),
        ({"data": {"x": INPUTS}, "by": "hospital"}, "no column 'hospital'; there are x"),
        ({"data": (INPUTS, LABELS), "by": [1, 2]}, "by: 2 keys for 600 samples"),
        ({"data": (INPUTS, LABELS.reshape(-1, 1)), "nodes": 2, "how": "dirichlet"}, "one label a sample is needed"),
        ({"data": (INPUTS, LABELS), "nodes": 601}, "more than the 600 samples"),
    ],
)
def test_what_cannot_be_split(arguments, words):
    with pytest.raises(DataError, match=words):
        wt.split(**arguments)
