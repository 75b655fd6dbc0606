"""Sums that go round a ring in parts: exact, of the size that theory says, and in the time that it says."""

from __future__ import annotations

from contextlib import nullcontext
from random import Random

import numpy as np
import pytest

import walktalk as wt
from tests.support.unlike import run
from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.protocols import Context, DiLoCo, Message, Received, RingAllReduce, Started
from walktalk.protocols.events import NetworkView

CYCLE = graphs.cycle(5)


@pytest.mark.parametrize("parts", [1, 2, 5, 7])
def test_it_is_the_mean_of_all_models_whatever_the_parts(parts: int) -> None:
    """As a server that averages, from the same model, with the same batches."""
    ring = run(RingAllReduce(parts=parts, steps=2), CYCLE, 6)
    server = run(DiLoCo(steps=2, outer_lr=1.0, outer_momentum=0.0), graphs.star(5), 6)
    assert np.allclose(ring.members, ring.members[0], atol=1e-6)
    assert np.allclose(ring.output, server.output, atol=1e-4)


def test_with_outer_steps_it_is_diloco_without_a_server() -> None:
    settings = {"steps": 3, "outer_lr": 0.7, "outer_momentum": 0.9}
    ring = run(RingAllReduce(parts=3, **settings), CYCLE, 7)  # type: ignore[arg-type]
    server = run(DiLoCo(**settings), graphs.star(5), 7)  # type: ignore[arg-type]
    assert np.allclose(ring.output, server.output, atol=1e-4)


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_a_node_sends_two_models_less_two_parts_of_one(nodes: int) -> None:
    """2 (V − 1) / V of a model a node and round; and a round lasts that long, where its links carry nothing else."""
    size, bandwidth, parts = 40_000_000, 1e8, 4 * nodes
    rounds, asked = 6, {"timing": wt.NetworkTiming(compute=1.0, latency=0.0, bandwidth=bandwidth)}
    stop = wt.Stop(iterations=rounds * nodes)  # the last exchange only begins
    graph = graphs.cycle(nodes) if nodes > 2 else graphs.complete(2)
    found = wt.forecast(RingAllReduce(parts=parts), graph, model_bytes=size, stop=stop, **asked)
    share = 2 * (nodes - 1) / nodes
    begun = 1  # model: all parts of the last round have left the nodes where their sums begin
    assert found.bits == pytest.approx(((rounds - 1) * nodes * share + begun) * size * 8, rel=0.01)
    assert found.time == pytest.approx(rounds + (rounds - 1) * share * size * 8 / bandwidth, rel=0.01)
    assert found.utilization == pytest.approx(rounds / found.time, rel=1e-6)


def test_a_server_needs_as_many_models_as_there_are_others() -> None:
    """What the ring is for: through the server's link goes everybody's model, up and down."""
    how = {"timing": wt.NetworkTiming(compute=1.0, latency=0.0, node_bandwidth=1e8)}
    stop, size = wt.Stop(iterations=32), 10_000_000
    ring = wt.forecast(RingAllReduce(parts=8), graphs.cycle(8), model_bytes=size, stop=stop, **how)
    star = wt.forecast(DiLoCo(), graphs.star(8), model_bytes=size, stop=stop, **how)
    assert star.time > 2 * ring.time
    assert star.utilization < ring.utilization < 1


def test_a_graph_without_the_ring_is_refused() -> None:
    with pytest.raises(SpecError, match="no links 0-1-2"):
        RingAllReduce().check_graph(graphs.star(4))
    RingAllReduce().check_graph(graphs.complete(4))
    RingAllReduce().check_graph(graphs.cycle(4))


@pytest.mark.parametrize(
    ("sender", "message", "refused"),
    [
        (4, Message("gather_1", round=1), False),  # a node may be one round ahead, and no more
        (4, Message("gather_1", round=2), True),
        (1, Message("reduce_1", round=0), True),  # who is not the one before says nothing
    ],
)
def test_what_nobody_could_have_said_is_refused(sender: int, message: Message, refused: bool) -> None:
    machine, context = RingAllReduce(parts=2).machine(NetworkView(0, 5, (1, 4), (2, 2))), Context(0.0, Random(0))
    machine.handle(Started(), context)
    with pytest.raises(ValueError, match=message.kind) if refused else nullcontext():
        machine.handle(Received(sender, message, "slot"), context)
