"""The asynchronous protocols: the law that defines each, their special cases, and where they end on unlike data."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.unlike import LR, Ended, run
from walktalk import graphs
from walktalk.codecs import codec_named
from walktalk.errors import UserError
from walktalk.graphs import Graph
from walktalk.protocols import OSGP, SGP, AsyncGossip, Protocol, SwarmSGD
from walktalk.runtimes.simulator import NetworkTiming, PoissonTiming, Timing

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


# -- SwarmSGD ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timing", [NetworkTiming(compute=1.0, latency=0.001), UNEVEN, PoissonTiming()])
def test_blocking_swarm_with_one_step_is_random_pairwise_gossip(timing: Timing) -> None:
    """Replayed as nothing but gradient steps and exact means of pairs, neither of which trains meanwhile."""
    ended = run(SwarmSGD(steps=1, blocking=True), graphs.erdos_renyi(7, p=0.5, seed=3), 30, timing=timing)
    x = np.repeat(ended.trainer.initial().double().numpy()[None], 7, 0)
    steps, open_, pairs = np.zeros(7, int), {}, 0
    for row in ended.trace:
        if row.event == "trained":
            x[row.node] -= LR * ended.trainer.gradients(x)[row.node]
            steps[row.node] += 1
        elif row.event == "combine" and row.slot == "model" and len(row.detail) == 2 and "update" not in row.detail:
            partner = int(next(slot for slot in row.detail if "/" in slot).split("/")[1])
            if open_.pop(partner, None) != row.node:  # the first of the two; the other waits for its model
                open_[row.node], pairs = partner, pairs + 1
                x[row.node] = x[partner] = (x[row.node] + x[partner]) / 2
    assert pairs > 20
    assert steps.min() > 0.3 * steps.mean()  # nobody starves
    settled = [v for v in range(7) if v not in open_.values()]
    assert np.allclose(ended.members[settled], x[settled], atol=1e-4)


def test_blocking_swarm_of_two_is_data_parallel_sgd() -> None:
    ended = run(SwarmSGD(blocking=True), graphs.complete(2), 8)
    x = ended.trainer.initial().double().numpy()
    for _ in range(8):
        x = x - LR * ended.trainer.gradients(np.repeat(x[None], 2, 0)).mean(0)
    assert np.allclose(ended.members, x, atol=1e-5)


def test_swarm_without_blocking_is_gossip_that_overlaps() -> None:
    swarm, gossip = (
        run(protocol, graphs.cycle(6), 25, timing=UNEVEN)
        for protocol in (SwarmSGD(steps=1, resilient=False), AsyncGossip(overlap=True, resilient=False))
    )
    assert np.array_equal(swarm.members, gossip.members)


def test_local_steps_are_geometric_with_their_mean() -> None:
    ended = run(SwarmSGD(steps=4, random_steps=True, resilient=False), graphs.cycle(6), 200)
    drawn = [row.detail["steps"] for row in ended.trace if row.event == "train"]
    assert min(drawn) == 1
    assert np.mean(drawn) == pytest.approx(4.0, rel=0.15)  # five standard deviations
    assert np.mean(np.array(drawn) == 1) == pytest.approx(0.25, abs=0.07)


@pytest.mark.parametrize("timing", [NetworkTiming(compute=1.0, latency=0.001), UNEVEN])
def test_quantized_swarm_keeps_the_same_points_of_reference_at_both_ends(timing: Timing) -> None:
    graph = graphs.erdos_renyi(6, p=0.5, seed=2)
    ended = run(SwarmSGD(codec="int4"), graph, 40, timing=timing)
    same = [
        np.allclose(ended.slots[v][f"shown/{u}"], ended.slots[u][f"seen/{v}"], atol=1e-5)
        for v in range(6)
        for u in graph.neighbours(v)
    ]
    assert np.mean(same) > 0.6  # the others have a message on the way
    apart = [ended.slots[u][f"seen/{v}"] - ended.members[v] for v in range(6) for u in graph.neighbours(v)]
    assert np.abs(apart).max() < 3.0


def test_32_bits_change_nothing_and_8_bits_send_a_quarter() -> None:
    """`part(0, 1)` sends all numbers as they are."""
    plain, whole, few = (
        run(SwarmSGD(codec=codec, resilient=False), graphs.cycle(6), 20) for codec in ("", "part(0, 1)", "int8")
    )
    assert np.allclose(plain.members, whole.members, atol=1e-4)
    assert plain.bits == whole.bits
    assert few.bits < plain.bits
    assert codec_named("int8").size(10**6) < 0.26 * codec_named("part(0, 1)").size(10**6)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"random_steps": True}, "the mean of them"),
        ({"blocking": True, "codec": "int8"}, "set blocking to false"),
        ({"codec": "nonsense"}, "codec"),
    ],
)
def test_swarm_says_what_cannot_be(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        SwarmSGD(**settings)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
