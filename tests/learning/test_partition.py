"""Splits: disjoint, complete, nobody empty, whatever α and however many nodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walktalk.core.errors import DataError
from walktalk.learning.partition import by_key, by_label, dirichlet, iid, true_dirichlet

SEEDS = st.integers(0, 2**32)
LABELS = st.lists(st.integers(0, 9), min_size=1, max_size=200).map(np.array)


def check(parts: list[np.ndarray], samples: int, nodes: int) -> None:
    assert len(parts) == nodes
    assert all(len(part) > 0 for part in parts)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(samples))


@settings(max_examples=60, deadline=None)
@given(LABELS, st.integers(1, 40), st.floats(1e-6, 1e6), SEEDS)
def test_dirichlet_is_a_partition(labels, nodes, alpha, seed):
    if nodes > len(labels):
        with pytest.raises(DataError, match="more than the"):
            dirichlet(labels, nodes, alpha, seed)
        return
    check(dirichlet(labels, nodes, alpha, seed), len(labels), nodes)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(1, 40), SEEDS)
def test_iid_is_a_partition_of_equal_sizes(samples, nodes, seed):
    if nodes > samples:
        with pytest.raises(DataError, match="more than the"):
            iid(samples, nodes, seed)
        return
    parts = iid(samples, nodes, seed)
    check(parts, samples, nodes)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@settings(max_examples=60, deadline=None)
@given(LABELS, st.integers(1, 30), st.integers(1, 10), SEEDS)
def test_by_label_is_a_partition_with_few_classes_a_node(labels, nodes, per_node, seed):
    classes = len(np.unique(labels))
    if nodes > len(labels) or per_node > classes or nodes * per_node < classes:
        with pytest.raises(DataError):
            by_label(labels, nodes, per_node, seed)
        return
    parts = by_label(labels, nodes, per_node, seed)
    check(parts, len(labels), nodes)
    smallest = np.bincount(np.unique(labels, return_inverse=True)[1]).min()
    if smallest >= nodes:  # enough of every class, so nobody had to be given a sample of another
        assert max(len(np.unique(labels[part])) for part in parts) <= per_node


@settings(max_examples=60, deadline=None)
@given(LABELS, st.integers(1, 30), SEEDS)
def test_by_key_is_a_partition_that_keeps_keys_together(keys, nodes, seed):
    if nodes > len(keys):
        with pytest.raises(DataError, match="more than the"):
            by_key(keys, nodes, seed)
        return
    parts = by_key(keys, nodes, seed)
    check(parts, len(keys), nodes)
    names = np.unique(keys)
    owners = {name: [v for v, part in enumerate(parts) if (keys[part] == name).any()] for name in names}
    if len(names) >= nodes:
        assert all(len(who) == 1 for who in owners.values())


def test_alpha_says_how_different_the_nodes_are():
    labels = np.repeat(np.arange(10), 500)

    def unevenness(alpha: float) -> float:
        """Mean total variation between a node's classes and the even ones."""
        parts = dirichlet(labels, 20, alpha, seed=3)
        shares = [np.bincount(labels[p], minlength=10) / len(p) for p in parts]
        return float(np.mean([np.abs(s - 0.1).sum() / 2 for s in shares]))

    huge, ten, one, tenth, tiny = (unevenness(a) for a in (1e6, 10.0, 1.0, 0.1, 1e-3))
    assert huge < 0.02 < ten < one < tenth < tiny
    assert tiny > 0.7  # one class, for most


def test_an_alpha_that_underflows_gives_every_class_to_one_node():
    labels = np.repeat(np.arange(10), 50)
    parts = dirichlet(labels, 20, 1e-300, seed=0)
    check(parts, 500, 20)


def test_a_true_split_is_the_first_draw_without_an_empty_node_or_an_error():
    labels = np.repeat(np.arange(10), 50)
    same = true_dirichlet(labels, 20, 1.0, seed=0), dirichlet(labels, 20, 1.0, seed=0)
    assert all(np.array_equal(a, b) for a, b in zip(*same, strict=True))
    check(true_dirichlet(labels, 20, 0.1, seed=4), 500, 20)
    with pytest.raises(DataError, match=r"alpha: 0.001 leaves at least \d+ of 20 nodes without samples"):
        true_dirichlet(labels, 20, 1e-3, seed=0)
    with pytest.raises(DataError, match="more than the 5 samples"):
        true_dirichlet(labels[:5], 20, 1.0, seed=0)


def test_a_split_depends_on_its_seed_alone():
    labels = np.repeat(np.arange(10), 50)
    again = [dirichlet(labels, 7, 0.3, seed) for seed in (1, 1, 2)]
    assert all(np.array_equal(a, b) for a, b in zip(again[0], again[1], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(again[0], again[2], strict=True))


def test_by_label_gives_out_every_class_when_all_nodes_together_can():
    labels = np.repeat(np.arange(10), 100)
    parts = by_label(labels, 20, 2, seed=1)
    assert all(len(np.unique(labels[part])) == 2 for part in parts)
    assert len({len(part) for part in parts}) <= 2


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf"), 1e308])
def test_impossible_alphas(alpha):
    with pytest.raises(DataError, match=r"alpha: .* a number above 0"):
        dirichlet(np.zeros(10, int), 2, alpha, 0)


def test_impossible_numbers():
    with pytest.raises(DataError, match="nodes: 0 is not possible"):
        iid(10, 0, 0)
    with pytest.raises(DataError, match="labels_per_node: 3 is not possible; allowed: 1 to 2"):
        by_label(np.array([0, 1, 0, 1]), 2, 3, 0)
    with pytest.raises(DataError, match="leaves some of 10 classes to nobody; at least 5"):
        by_label(np.repeat(np.arange(10), 5), 2, 2, 0)
