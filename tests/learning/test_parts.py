"""One node's task: the same samples as in everybody's, and nothing else is asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from walktalk.core.errors import DataError
from walktalk.learning import Task, tasks
from walktalk.learning.tasks import cifar10, fashion_mnist
from walktalk.learning.tasks.registry import Node, only_part, part_wanted


def anything(folder: str = ".", part: str | None = None) -> Task: ...


def by_number(part: int | None = None) -> Task: ...


def untyped(part=None): ...


def everybody(nodes: int = 3) -> Task: ...


@pytest.mark.parametrize(
    ("make", "node", "part"),
    [
        (anything, Node("north", 2), "north"),
        (anything, Node(None, 2), 2),
        (by_number, Node("north", 2), 2),
        (untyped, Node("north", 2), "north"),
        (everybody, Node("north", 2), None),
    ],
)
def test_what_a_function_is_asked_for(make, node, part):
    assert part_wanted(make, node) == part


def test_a_function_that_was_asked_for_one_part_gives_one():
    x, y = torch.zeros(6, 2), torch.zeros(6, 1)
    task = tasks.torch(nn.Linear(2, 1), functional.mse_loss, {"a": (x, y), "b": (x, y)})
    with pytest.raises(DataError, match="asked for the part of b alone, but gave 2 nodes; hand `part` on"):
        only_part(task, Node("b", 1), True)
    assert only_part(task, Node("b", 1), False).names == ("b",)


@pytest.mark.parametrize("name", ["digits", "quadratic"])
def test_a_task_that_takes_no_part_is_cut(name):
    whole, mine = tasks.build(name, 4, 0), tasks.build_part(name, 4, 0, Node("c", 2))
    assert mine.nodes == 1
    assert torch.equal(mine.inputs, whole.inputs[whole.parts[2]])


@pytest.fixture
def images(monkeypatch, tmp_path):
    """Small files in place of the published ones."""
    rng = np.random.default_rng(0)

    def batch(path):
        return rng.integers(0, 255, (60, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, 60)

    def idx(path):
        pixels = "images" in path.name
        return rng.integers(0, 255, (60, 28, 28) if pixels else 60, dtype=np.uint8) % (255 if pixels else 10)

    for module, function in ((cifar10, batch), (fashion_mnist, idx)):
        there = __import__(module.__module__, fromlist=["locate"])
        monkeypatch.setattr(there, "locate", lambda data, folder: tmp_path)
        seen: dict = {}

        def read(path, seen=seen, function=function):
            return seen.setdefault(path, function(path))

        monkeypatch.setattr(there, "cifar_batch" if module is cifar10 else "idx", read)


@pytest.mark.parametrize("name", ["cifar10", "fashion_mnist"])
def test_images_of_one_node(name, images):
    whole, mine = tasks.build(name, 4, 0, alpha=1.0), tasks.build_part(name, 4, 0, Node("c", 2), alpha=1.0)
    assert mine.nodes == 1
    assert mine.test is None
    assert torch.equal(mine.inputs, whole.inputs[whole.parts[2]])
    assert torch.equal(mine.targets, whole.targets[whole.parts[2]])
    with pytest.raises(DataError, match=r"part: 9 is not possible; allowed: 0 to 3"):
        tasks.TASKS[name](nodes=4, part=9)
