"""Where an optimizer's state lives between two visits: with the walk, at the node, or nowhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import walktalk as wt
from walktalk.runtimes.peers.operations.ledger import Sums
from walktalk.runtimes.semantics import Interpreter, Scale


@pytest.mark.parametrize(("place", "owner"), [("walk", (3, "walk/1")), ("node", (3, "")), ("visit", (3, ""))])
def test_a_state_belongs_to_the_model_it_travels_with_or_to_the_node(place, owner):
    assert Interpreter(Sums(), {}, Scale(optimizer_state=place)).state_owner(3, "walk/1") == owner


@pytest.mark.parametrize("place", ["walk", "node"])
def test_one_walk_with_momentum_is_the_loop_that_it_stands_for(place):
    """A velocity for the walk, or one for every node: the trace says who trained, plain NumPy does the rest."""
    data = torch.tensor([[1.0 * node, 2.0 - node] for node in range(4)])  # f_i = ‖x − c_i‖² / 2
    task = wt.tasks.torch(Point(), halved_square, [(torch.zeros(1, 2), c[None]) for c in data])
    run = wt.train(
        task,
        wt.MultiWalk(1),
        wt.graphs.cycle(4),
        optimizer=wt.SGD(lr=0.1, momentum=0.5, nesterov=False),
        batch_size=1,
        local_steps=1,
        optimizer_state=place,
        stop=60,
        device="cpu",
    )
    x, copy, velocities = np.zeros(2), np.zeros(2), dict[object, np.ndarray]()
    for node in run.trace[run.trace.event == "trained"].node[:60]:
        owner = node if place == "node" else "walk"
        velocities[owner] = 0.5 * velocities.get(owner, np.zeros(2)) + (x - data[node].numpy())
        x = x - 0.1 * velocities[owner]
        copy = x if node == 0 else copy  # the aggregator's, of its last visit
    assert run.model.at.detach().numpy() == pytest.approx(copy, abs=1e-6)


class Point(nn.Module):
    """A model that is a point, whatever its input."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.at


def halved_square(outputs: Tensor, targets: Tensor) -> Tensor:
    """Its gradient is what is between both."""
    return ((outputs - targets) ** 2).sum(-1).mean() / 2
