"""A neighbour that says that it is there and acknowledges nothing: others go on without it, and name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers.test_hangs import OFTEN, goes_on, graph_of
from walktalk.protocols import PROTOCOLS, Digest, Effect, Event, MultiWalk, Protocol, Received
from walktalk.runtimes.semantics import Stop
from walktalk.testing.cluster import LocalCluster, running, wait_for

DEAF = 1  # the node
NAMES = ("multi_walk", "token_saga", "digest", "async_gossip", "swarm_sgd", "local_dsgd", "sgp", "fedavg", "fedbuff")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("walktalk.runtimes.peers.wire.outbox.UNANSWERED", 2.0)
    monkeypatch.setattr("walktalk.runtimes.peers.wire.outbox.UNTAKEN", 2.0)
    monkeypatch.setattr("walktalk.runtimes.peers.node.neighbours.BACK_OFF", 3.0)


def of_others(cluster: LocalCluster) -> int:
    return sum(node.progress.tally.own.iterations for v, node in enumerate(cluster.nodes) if v != DEAF)


TRIED = [
    *(pytest.param(PROTOCOLS.find(name)(), marks=[] if name in OFTEN else pytest.mark.slow) for name in NAMES),
    pytest.param(MultiWalk(walks=3, guard="create_if_late"), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("protocol", TRIED, ids=lambda one: one.label)
@pytest.mark.parametrize(
    "answers", [pytest.param(True, marks=pytest.mark.slow, id="it waits"), pytest.param(False, id="no answer")]
)
def test_who_acknowledges_nothing_is_left_out_and_named(protocol: Protocol, answers: bool, tmp_path: Path) -> None:
    """16.6 iterations a second came to 0.0, and nobody complained."""
    with running(protocol, graph_of(protocol.name), tmp_path, Stop(time=600.0)) as cluster:
        node, neighbour = cluster.nodes[DEAF], cluster.nodes[0]
        wait_for(lambda: all(one.progress.tally.own.iterations > 3 for one in cluster.nodes), "a beginning")
        acknowledge, receive = node.link.acknowledge, node.link._receive_ack
        node.link.acknowledge = lambda delivery: None  # type: ignore[method-assign]
        if not answers:
            node.link._receive_ack = lambda sender, data: None  # type: ignore[method-assign]
        line = "it refuses n1: it acknowledges nothing, though it says that it is there"
        wait_for(lambda: line in neighbour.health.complaints(), "a complaint")
        goes_on(lambda: of_others(cluster), 40)
        node.link.acknowledge, node.link._receive_ack = acknowledge, receive  # type: ignore[method-assign]
        wait_for(lambda: DEAF in neighbour.state.alive and not neighbour.health.complaints(), "a recovery")


@pytest.mark.parametrize(
    "protocol", [MultiWalk(walks=3, heartbeat=0.25), pytest.param(Digest(patience=1.0), marks=pytest.mark.slow)]
)
def test_one_whose_link_works_and_whose_algorithm_does_not_is_gone_round(
    protocol: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Walks that came to it were acknowledged by its link, and their senders asked it for an answer for ever."""
    monkeypatch.setattr("walktalk.runtimes.peers.wire.outbox.ASKED_AGAIN", 2)
    with running(protocol, graph_of(protocol.name), tmp_path, Stop(time=600.0)) as cluster:
        node, neighbour = cluster.nodes[DEAF], cluster.nodes[0]
        wait_for(lambda: all(one.progress.tally.own.iterations > 3 for one in cluster.nodes), "a beginning")
        handle = node.runner.handle

        def overhear(event: Event) -> list[Effect]:
            came = isinstance(event, Received) and event.slot
            return [] if came else handle(event)

        node.runner.handle = overhear  # type: ignore[method-assign]
        line = "it refuses n1: it takes what comes, and its algorithm answers nothing"
        wait_for(lambda: any(line in one.health.complaints() for one in cluster.nodes), "a complaint")
        goes_on(lambda: of_others(cluster), 40)
        node.runner.handle = handle  # type: ignore[method-assign]
        wait_for(lambda: DEAF in neighbour.state.alive and not neighbour.health.complaints(), "a recovery")


def test_it_is_asked_again_later_each_time(tmp_path: Path) -> None:
    with running(MultiWalk(walks=3), graph_of("multi_walk"), tmp_path, Stop(time=600.0)) as cluster:
        wait_for(lambda: all(one.progress.tally.own.iterations > 3 for one in cluster.nodes), "a beginning")
        cluster.nodes[DEAF].link.acknowledge = lambda delivery: None  # type: ignore[method-assign]
        others = [node.neighbours for v, node in enumerate(cluster.nodes) if v != DEAF]
        wait_for(lambda: any(DEAF in one._deaf and one._deaf[DEAF].times > 1 for one in others), "a second time")
