"""The adaptive method of docs/protocol.md does what its paper says, number by number."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.unlike import LR, matrix, run
from walktalk.graphs import complete, cycle

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from gt_adam import GTAdam


@pytest.mark.parametrize("graph", [cycle(5), complete(4)], ids=lambda graph: graph.name)
def test_it_is_carnevales_method(graph):
    ours, rounds = GTAdam(beta1=0.8, beta2=0.95, tau=0.01), 12
    ended = run(ours, graph, rounds)
    w = matrix(graph)
    x = np.repeat(ended.trainer.initial().double().numpy()[None], graph.nodes, 0)
    last = y = m = np.zeros_like(x)
    v = np.full_like(x, ours.tau**2)
    for _ in range(rounds):
        gradients = ended.trainer.gradients(x)
        y, last = y + gradients - last, gradients
        assert np.allclose(y.mean(0), gradients.mean(0))  # what tracking is for
        m = ours.beta1 * m + (1 - ours.beta1) * y
        v = ours.beta2 * v + (1 - ours.beta2) * y**2
        x, y = w @ x - LR * m / (np.sqrt(v) + ours.tau), w @ y
    assert np.allclose(ended.members, x, atol=1e-5)
