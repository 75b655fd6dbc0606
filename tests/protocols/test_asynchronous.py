"""The asynchronous protocols: the law that defines each, their special cases, and where they end on unlike data."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.unlike import Ended, run
from walktalk import graphs
from walktalk.graphs import Graph
from walktalk.protocols import OSGP, SGP, AsyncGossip, Protocol
from walktalk.runtimes.simulator import NetworkTiming

UNEVEN = NetworkTiming(compute=1.0, spread=0.4, straggler_share=0.3, straggler_slowdown=3.0, latency=0.4)


def trainings(ended: Ended) -> int:
    """How many there were."""
    return sum(row.event == "trained" for row in ended.trace)


# -- overlap stochastic gradient push ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "graph", [graphs.exponential(8), graphs.one_peer_exponential(8), graphs.random_matchings(5)], ids=lambda g: g.name
)
def test_osgp_without_delay_is_sgp(graph: Graph) -> None:
    """And so, with doubly stochastic weights, D-PSGD."""
    ours, theirs = (run(protocol, graph, 9) for protocol in (OSGP(delay=0), SGP()))
    assert np.allclose(ours.members, theirs.members, atol=1e-5)
    assert ours.bits == theirs.bits


def test_osgp_conserves_sum_and_weight_with_what_is_on_the_way() -> None:
    graph = Graph.from_arcs(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (0, 3)], "lopsided")
    ended = run(OSGP(delay=3), graph, 40, timing=UNEVEN, lr=0.0)
    start = ended.trainer.initial().double().numpy()
    assert np.allclose(ended.members, start, atol=1e-5)  # x and w are always the same multiple of the start


def test_osgp_does_not_wait_and_sgp_does() -> None:
    far = NetworkTiming(compute=1.0, latency=0.8)
    goes_on, waits = (trainings(run(protocol, graphs.exponential(6), 20, timing=far)) for protocol in (OSGP(), SGP()))
    assert goes_on == 6 * 20
    assert waits < 0.6 * goes_on


# -- gossip that overlaps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mixing", ["pairwise", "neighbourhood"])
def test_gossip_that_overlaps_trains_while_answers_are_on_the_way(mixing: str) -> None:
    far = NetworkTiming(compute=1.0, latency=0.5)
    waits, goes_on = (
        run(AsyncGossip(mixing, overlap=overlap, resilient=False), graphs.cycle(6), 20, timing=far)  # type: ignore[arg-type]
        for overlap in (False, True)
    )
    assert (trainings(waits), trainings(goes_on)) == (6 * 10, 6 * 20)


# -- where they end on unlike data ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "protocol", [OSGP(), AsyncGossip(overlap=True, resilient=False)], ids=lambda protocol: protocol.label
)
def test_it_comes_near_the_optimum_and_stays_beside_it(protocol: Protocol) -> None:
    """With a constant step gossip is biased by how unlike the data are, and the more so the larger the step."""
    graph = graphs.exponential(6) if protocol.on_directed_graphs else graphs.cycle(6)
    far, near = (
        np.abs(ended.members.mean(0) - ended.trainer.optimum()).max()
        for ended in (run(protocol, graph, 400, lr=lr) for lr in (0.2, 0.02))
    )
    assert 1e-3 < near < 0.5 * far
