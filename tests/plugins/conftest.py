"""A stranger's package: a protocol, a task and a topology, in a file that walktalk has never heard of."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from walktalk.core import plugins

OUTSIDE = '''
"""What somebody else wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt

import walktalk as wt
from walktalk.protocols import INITIAL, MEMBER, UPDATE, Combine, Machine, Record, Started, Train, Trained


@dataclass(frozen=True)
class Islands(wt.Protocol):
    """Every node trains alone.

    Args:
        patience: seconds that nobody waits.
    """

    patience: Annotated[float, Gt(0)] = 1.0
    family = "islands"
    title = "islands in the sea"
    colour = "#123456"
    messages = {}  # nothing is ever sent

    def machine(self, network_view):
        return Island(network_view.node)


class Island(Machine):
    def __init__(self, node):
        self.node = node

    def handle(self, event, outside):
        if not isinstance(event, (Started, Trained)):
            return []
        into = Combine("model", {INITIAL: 1.0} if isinstance(event, Started) else {"model": 1.0, UPDATE: 1.0})
        return [into, Record(MEMBER, self.node, "model"), Train("model")]


def line(nodes: int = 4, seed: int = 0, *, slope: float, noise: Annotated[float, Ge(0)] = 0.1) -> wt.Task:
    """Points on a line.

    Args:
        nodes: how many share them.
        seed: of the points.
        slope: of the line.
        noise: beside it.
    """
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(40, 1)), dtype=torch.float32)
    parts = [(x[k::nodes], slope * x[k::nodes]) for k in range(nodes)]
    return wt.tasks.torch(torch.nn.Linear(1, 1), torch.nn.functional.mse_loss, parts)


def wheel(nodes: int, spokes: Annotated[int, Ge(1)] = 1) -> wt.Graph:
    """A ring around node 0.

    Args:
        nodes: how many, with the hub.
        spokes: every how many-th node of the ring has one.
    """
    ring = [(k, k % (nodes - 1) + 1) for k in range(1, nodes)]
    return wt.Graph.from_edges(nodes, ring + [(0, k) for k in range(1, nodes, spokes)], "wheel")


NOT_ONE = 3
'''

SPEC = """
name: outside
repetitions: 2
network: {topology: "outside:wheel", nodes: 4, spokes: 2}
task: {name: "outside:line", slope: 2.0}
training: {batch_size: 4, local_steps: 1}
optimizer: {lr: 0.1, momentum: 0.0, nesterov: false}
algorithms:
  - {name: "outside:Islands", patience: [1.0, 2.0]}
  - {name: multi_walk, walks: 2}
stop: {iterations: 20}
evaluate: {every: 10}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder with the stranger's file in it, as the current one; nothing of it stays known afterwards."""
    (tmp_path / "outside.py").write_text(OUTSIDE, encoding="utf-8")
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    for registry in plugins.REGISTRIES.values():
        monkeypatch.setattr(registry, "_things", dict(registry._things))
    monkeypatch.setattr(plugins, "_tried", set())
    yield tmp_path
    for name in ("outside", "other", "broken", "needy", "mine", "package_inside"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
