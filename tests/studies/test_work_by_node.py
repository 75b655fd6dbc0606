"""Local steps, epochs and batch sizes by node: what a training does, how long it takes, and what stays as it was."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

import walktalk as wt
from walktalk.core.errors import SpecError, UserError
from walktalk.learning import Trainer, TrainingRows
from walktalk.learning.tasks import Node
from walktalk.studies import make_spec
from walktalk.studies.planning import build_trainer, work_of_nodes

SIZES = (40, 10, 25)
NAMES = ("lyon", "nice", "paris")


def task(names: tuple[str, ...] | None = None) -> wt.Task:
    """Three nodes with 40, 10 and 25 samples."""
    rng = torch.Generator().manual_seed(0)
    parts = [
        torch.utils.data.TensorDataset(torch.randn(n, 4, generator=rng), torch.randint(0, 3, (n,), generator=rng))
        for n in SIZES
    ]
    torch.manual_seed(0)
    given = dict(zip(names, parts, strict=True)) if names else parts
    return wt.tasks.torch(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), nn.CrossEntropyLoss(), given)


KINDS = ("multi_walk", "async_gossip", "sync_gossip", "fedavg", "scaffold", "centralized")


def spec(**training):
    section = {"topology": "complete", "nodes": 3}
    return make_spec({"network": section, "training": training, "algorithms": [{"name": "async_gossip"}]})


def trained(trainer: Trainer, parts: list[int], key: int = 5) -> torch.Tensor:
    rows = trainer.initial_row(0)[None].repeat(len(parts), 1)
    keys = torch.arange(key, key + len(parts))
    return trainer.train(TrainingRows(rows, torch.tensor(parts), keys, torch.full((len(parts),), 0.1))).rows


@pytest.mark.parametrize(
    ("training", "batches", "steps"),
    [
        ({"batch_size": 5, "local_steps": 3}, 5, 3),
        ({"batch_size": 5, "local_steps": {"epochs": 1}}, [5, 5, 5], [8, 2, 5]),
        ({"batch_size": [8, 2, 5], "local_steps": {"epochs": 2}}, [8, 2, 5], [10, 10, 10]),
        ({"batch_size": 40, "local_steps": {"epochs": 0.5}}, [40, 40, 40], [1, 1, 1]),
        ({"batch_size": {"0": 8, "1": 2, "2": 5}, "local_steps": [1, 2, 3]}, [8, 2, 5], [1, 2, 3]),
    ],
)
def test_numbers_by_node(training, batches, steps):
    assert work_of_nodes(spec(**training), task()) == (batches, steps)


def test_names_and_one_node_alone():
    by_name = spec(local_steps={"paris": 3, "lyon": 1, "nice": 2}, batch_size=4)
    assert work_of_nodes(by_name, task(NAMES))[1] == [1, 2, 3]
    single = task().only(1)
    assert work_of_nodes(by_name, task(NAMES).only(1), Node("nice", 1)) == ([4], [2])
    assert work_of_nodes(spec(local_steps=[1, 2, 3], batch_size=4), single, Node(None, 2)) == ([4], [3])
    assert work_of_nodes(spec(local_steps={"epochs": 1}, batch_size=4), single, Node("x", 7)) == ([4], [2])
    with pytest.raises(SpecError, match=r"training.local_steps: node 'metz' is missing"):
        work_of_nodes(by_name, single, Node("metz", 7))


@pytest.mark.parametrize("parts", [[0], [1], [2], [0, 1, 2, 1, 0]])
def test_a_training_is_as_if_all_nodes_had_that_batch(parts):
    """In a wave of unlike nodes each row has the bits of a trainer that has its batch size for all."""
    mixed = Trainer(task(), batch_size=[8, 2, 5], local_steps=3)
    found = trained(mixed, parts)
    for place, part in enumerate(parts):
        plain = Trainer(task(), batch_size=[8, 2, 5][part], local_steps=3)
        rows, keys = plain.initial_row(0)[None], torch.tensor([5 + place])
        alone = plain.train(TrainingRows(rows, torch.tensor([part]), keys, torch.tensor([0.1]))).rows[0]
        assert torch.equal(found[place], alone)


def run(algorithm, **keywords):
    return wt.train(
        task(), algorithm, wt.graphs.complete(3), stop=60, evaluate=20, optimizer=wt.SGD(momentum=0.0), **keywords
    )


@pytest.mark.parametrize("algorithm", ["multi_walk", "async_gossip", "sync_gossip", "fedavg", "centralized"])
def test_equal_numbers_leave_every_bit_as_it_was(algorithm):
    plain = run(algorithm, batch_size=4, local_steps=2)
    listed = run(algorithm, batch_size=[4, 4, 4], local_steps={"0": 2, "1": 2, "2": 2})
    assert plain.history.equals(listed.history)
    assert torch.equal(plain.row, listed.row)


@pytest.mark.parametrize(
    "algorithm", ["multi_walk", "async_gossip", "sync_gossip", "fedavg", "scaffold", "centralized"]
)
def test_every_kind_of_algorithm_runs_with_epochs(algorithm):
    found = run(algorithm, batch_size=[8, 2, 5], local_steps={"epochs": 1})
    assert np.isfinite(found.history["train_loss"]).all()
    assert found.history.equals(run(algorithm, batch_size=[8, 2, 5], local_steps={"epochs": 1}).history)


def test_steps_are_those_of_the_node():
    """A walk's own model, step by step: what a training leaves is what a trainer with those steps for all leaves."""
    steps = [1, 4, 2]
    by_node = Trainer(task(), batch_size=4, local_steps=steps)
    assert (by_node.local_steps, by_node.steps_of) == (2, (1, 4, 2))
    timing = wt.NetworkTiming(compute=1.0, latency=0.0, bandwidth=1e15)
    found = run(wt.MultiWalk(), batch_size=4, local_steps=steps, timing=timing)
    events = found.trace[found.trace["event"].isin(["train", "trained"])]
    took = {}
    for (_, begun), (_, done) in itertools.pairwise(events.iterrows()):
        if (begun["event"], done["event"]) == ("train", "trained"):
            took.setdefault(int(begun["node"]), set()).add(round(done["time"] - begun["time"], 6))
    assert took == {0: {round(3 / 7, 6)}, 1: {round(12 / 7, 6)}, 2: {round(6 / 7, 6)}}  # as their share of the work


@pytest.mark.parametrize(
    ("training", "line"),
    [
        ({"local_steps": {"epochs": 0}}, "training.local_steps.epochs: 0 is not possible; allowed: a number from 1e-6"),
        ({"local_steps": {"epochs": "x"}}, "training.local_steps.epochs: 'x' is not possible"),
        (
            {"local_steps": [1, 0, 1]},
            r"training.local_steps: \[1, 0, 1\] is not possible; allowed: a whole number from",
        ),
        ({"local_steps": 0}, "training.local_steps: 0 is not possible"),
        (
            {"local_steps": 2.5},
            "training.local_steps: 2.5 is not possible; allowed: a whole number from 1 to 1e6, a list",
        ),
        ({"batch_size": []}, r"training.batch_size: \[\] is not possible"),
        ({"batch_size": {"a": "b"}}, "training.batch_size: .* is not possible; allowed: a whole number from 1 to 1e6"),
    ],
)
def test_impossible_numbers_are_one_line(training, line):
    with pytest.raises(SpecError, match=line):
        spec(**training)


def test_numbers_that_do_not_fit_the_nodes_are_one_line():
    with pytest.raises(UserError, match=r"training.local_steps: 2 values for 3 nodes"):
        build_trainer(spec(local_steps=[1, 2]), task(), "cpu")
    with pytest.raises(UserError, match=r"training.batch_size: there is no node 'metz'; nodes: lyon, nice, paris"):
        build_trainer(spec(batch_size={"metz": 2}), task(NAMES), "cpu")
    with pytest.raises(UserError, match="forecast: there is no data here to count"):
        wt.forecast("multi_walk", "cycle", model_bytes=10, local_steps={"epochs": 1})
