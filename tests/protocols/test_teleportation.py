"""Teleportation: its rule, what it coincides with, what it sends, and where it ends on unlike data."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from tests.support.mechanisms import slow_unless
from tests.support.unlike import LR, matrix, run, train_then_mix
from walktalk import graphs
from walktalk.core.errors import SpecError
from walktalk.core.seeds import Seed
from walktalk.protocols import HEADER_BYTES, Teleportation
from walktalk.protocols.mechanisms.turns import Places
from walktalk.runtimes.simulator import NetworkTiming
from walktalk.testing import check_protocol

EVERYONE = graphs.complete(7)
TOPOLOGIES = ("cycle", "complete", "exponential", "one_peer_exponential", "star")


def teleported(protocol: Teleportation, nodes: int, rounds: int) -> np.ndarray:
    """In NumPy: models of all tokens after so many rounds."""
    ended = run(protocol, graphs.complete(nodes), 0)
    k = min(protocol.active, nodes)
    tokens, places = graphs.build(protocol.topology, k), Places(tuple(range(nodes)), k, Seed(protocol.seed))
    x = np.repeat(ended.trainer.initial().double().numpy()[None], k, 0)
    for t in range(rounds):
        everywhere = np.zeros((nodes, x.shape[1]))
        holders = list(places.holders(t))
        everywhere[holders] = x
        for _ in range(protocol.steps or 1):
            everywhere = everywhere - LR * ended.trainer.gradients(everywhere)
        x = matrix(tokens, t) @ everywhere[holders]
    return x


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_models_train_where_they_are_and_average_along_their_own_graph(topology: str, steps: int) -> None:
    protocol = Teleportation(4, topology, steps, seed=2)
    assert np.allclose(run(protocol, EVERYONE, 11).members, teleported(protocol, 7, 11), atol=1e-5)


def test_who_is_slow_changes_nothing() -> None:
    """A node may have a later model complete before its earlier one: it takes its turns in order."""
    protocol, slow = Teleportation(3, "cycle"), NetworkTiming(compute=1.0, spread=0.9, latency=0.3)
    ended = run(protocol, EVERYONE, 40, timing=slow)
    places, each = Places(tuple(range(7)), 3, Seed(0)), collections.defaultdict[int, list[int]](list)
    for row in (row for row in ended.trace if row.event == "record"):
        each[row.node].append(row.walk)
    for node, tokens in each.items():
        turns = [t for t in range(40) if node in places.holders(t)]
        assert tokens == [places.holders(t).index(node) for t in turns][: len(tokens)]


def test_with_all_nodes_and_a_complete_graph_it_is_one_large_batch() -> None:
    everyone = graphs.complete(6)
    ended = run(Teleportation(6, "complete"), everyone, 9)
    assert np.allclose(ended.members, train_then_mix(everyone, 9), atol=1e-5)


def test_one_model_is_plain_sgd_at_random_nodes() -> None:
    ended, places = run(Teleportation(1), EVERYONE, 12), Places(tuple(range(7)), 1, Seed(0))
    x = ended.trainer.initial().double().numpy()
    for t in range(12):
        (node,) = places.holders(t)
        x = x - LR * ended.trainer.gradients(np.repeat(x[None], 7, 0))[node]
    assert np.allclose(ended.members, x, atol=1e-5)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_mean_of_the_models_moves_by_the_mean_update_alone(topology: str) -> None:
    protocol, places = Teleportation(4, topology), Places(tuple(range(7)), 4, Seed(0))
    for t in range(6):
        before, after = run(protocol, EVERYONE, t), run(protocol, EVERYONE, t + 1)
        everywhere = np.zeros((7, 3))
        everywhere[list(places.holders(t))] = before.members
        learned = -LR * before.trainer.gradients(everywhere)[list(places.holders(t))]
        assert np.allclose(after.members.mean(0), before.members.mean(0) + learned.mean(0), atol=1e-5)


def test_without_learning_models_stay_what_they_were() -> None:
    """The same initial model everywhere is what any mean of it is."""
    ended = run(Teleportation(), EVERYONE, 8, lr=0.0)
    assert np.allclose(ended.members, ended.trainer.initial().numpy(), atol=1e-6)


@pytest.mark.parametrize(("topology", "degree"), [("cycle", 2), ("complete", 3), ("one_peer_exponential", 1)])
def test_a_round_sends_every_model_to_itself_and_its_neighbours_however_many_nodes_there_are(
    topology: str, degree: int
) -> None:
    for nodes in (7, 40):
        rounds, protocol = 10, Teleportation(4, topology)
        ended, places = run(protocol, graphs.complete(nodes), rounds), Places(tuple(range(nodes)), 4, Seed(0))
        sends = [row for row in ended.trace if row.event == "send"]
        assert ended.bits == 8 * len(sends) * (HEADER_BYTES + 12)
        most = 4 * (degree + 1) * rounds
        again = sum(len(set(places.holders(t)) & set(places.holders(t + 1))) for t in range(rounds))
        assert most - again <= len(sends) <= most  # nothing is sent to oneself
        assert len({row.node for row in ended.trace if row.event == "trained"}) > 4


def test_all_nodes_have_their_turns_equally_often_and_no_two_models_are_at_one() -> None:
    places = Places(tuple(range(9)), 4, Seed(3))
    counts = np.zeros(9)
    for t in range(900):
        holders = places.holders(t)
        assert len(set(holders)) == 4
        counts[list(holders)] += 1
    assert np.abs(counts / 400 - 1).max() < 0.2  # four standard deviations
    assert places.turn_after(5, 10) == next(t for t in range(11, 99) if 5 in places.holders(t))


def test_it_reaches_the_optimum_where_all_take_part_and_stays_beside_it_else() -> None:
    everyone = graphs.complete(6)
    for protocol, exact in ((Teleportation(6, "complete"), True), (Teleportation(3, "complete"), False)):
        ended = run(protocol, everyone, 200)
        far = np.abs(ended.members - ended.trainer.optimum()).max()
        assert far < 1e-4 if exact else far > 1e-2


OTHERS = [Teleportation(1, patience=0.02), Teleportation(5, "exponential"), Teleportation(2, "path", 2)]


@pytest.mark.parametrize("protocol", [pytest.param(one, marks=slow_unless(one is OTHERS[0])) for one in OTHERS])
def test_other_settings_pass_in_virtual_time(protocol: Teleportation) -> None:
    check_protocol(protocol, engines=("sim",), seconds=3.0, graph=graphs.complete(6))


def test_what_cannot_be_is_told() -> None:
    with pytest.raises(SpecError, match="4 is not possible with 3 nodes"):
        Teleportation().check_graph(graphs.complete(3))
    with pytest.raises(SpecError, match="not complete"):
        Teleportation().check_graph(graphs.cycle(5))
    with pytest.raises(SpecError, match="topology"):
        Teleportation(topology="moebius").check_graph(EVERYONE)
