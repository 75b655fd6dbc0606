"""Real nodes over loopback: they train, agree, stop, leave, come back; and their traces can be recomputed."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from walktalk import graphs
from walktalk.core.errors import UnavailableError
from walktalk.core.seeds import Seed
from walktalk.protocols import AsyncGossip, Message, MultiWalk, NetworkView, Protocol, SyncGossip
from walktalk.runtimes.peers import Delivery, Node, NodeSetup, Parcel, finished_before
from walktalk.runtimes.peers.identity.handshake import Hello, encode_hello
from walktalk.runtimes.peers.wire.messages import Stamp
from walktalk.runtimes.semantics import Objective, Stop
from walktalk.testing.cluster import SECONDS, SlowTrainer, endpoints, running

PROTOCOLS = [MultiWalk(walks=1), MultiWalk(walks=3), AsyncGossip(), AsyncGossip(mixing="neighbourhood"), SyncGossip()]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.label)
def test_a_run_ends_and_its_trace_gives_the_same_models(protocol: Protocol, tmp_path: Path) -> None:
    with running(protocol, graphs.cycle(4), tmp_path, Stop(iterations=60)) as cluster:
        cluster.wait()
    trace = cluster.trace()
    trained = [row for row in trace if row.event == "trained"]
    assert 60 <= len(trained) <= 90  # the end is heard of within a round of gossip
    assert [row.iteration for row in trained] == list(range(1, len(trained) + 1))
    replay = cluster.replay()
    last: dict[int, tuple[float, int]] = {}
    for row in trace:
        if row.event == "record" and row.detail == "member":
            last[row.walk] = (row.time, row.node)
    for key, (_, node) in last.items():
        np.testing.assert_allclose(
            cluster.nodes[node].models.interpreter.output.members[key].numpy(),
            replay.members[key],
            rtol=1e-4,
            atol=1e-5,
        )
    if isinstance(protocol, MultiWalk):
        aggregate = cluster.nodes[0].models.interpreter.output.aggregate
        assert aggregate is not None
        np.testing.assert_allclose(aggregate.numpy(), replay.output(), rtol=1e-4, atol=1e-5)
    start = ((cluster.trainer.initial().numpy() - cluster.trainer.centres[-1]) ** 2).sum()
    end = ((replay.output() - cluster.trainer.centres[-1]) ** 2).sum()
    assert end < start


def test_nodes_learn_how_much_the_others_count(tmp_path: Path) -> None:
    """From their progress; then steps are as long as the objective wants, and the trace says so."""
    objective, sizes = Objective("samples"), (40, 1, 1, 1)
    with running(
        AsyncGossip(), graphs.complete(4), tmp_path, Stop(iterations=160), samples=sizes, objective=objective
    ) as cluster:
        cluster.wait()
    trace = cluster.trace()
    last = {row.node: row.detail.get("factor", 1.0) if row.detail else 1.0 for row in trace if row.event == "train"}
    assert last == pytest.approx({0: 2.0, 1: 0.05, 2: 0.05, 3: 0.05})
    replay = cluster.replay()
    for node, interpreter in enumerate(node.models.interpreter for node in cluster.nodes):
        np.testing.assert_allclose(interpreter.output.members[node].numpy(), replay.members[node], rtol=1e-4, atol=1e-5)


def test_every_message_that_was_sent_and_taken_is_in_the_trace_once(tmp_path: Path) -> None:
    with running(MultiWalk(walks=2), graphs.complete(4), tmp_path, Stop(iterations=40)) as cluster:
        cluster.wait()
    trace = cluster.trace()
    sent = [row.number for row in trace if row.event == "send"]
    received = [row.number for row in trace if row.event == "receive"]
    assert len(set(sent)) == len(sent)
    assert len(set(received)) == len(received)
    assert set(received) <= set(sent)
    assert sum(row.bytes for row in trace if row.event == "send") == sum(
        n.progress.tally.own.sent for n in cluster.nodes
    )


def test_optimizer_state_travels_with_the_walk_and_is_counted(tmp_path: Path) -> None:
    with running(
        MultiWalk(walks=1), graphs.complete(3), tmp_path, Stop(iterations=20), momentum=0.9, optimizer_state="walk"
    ) as cluster:
        cluster.wait()
    sizes = {row.bytes for row in cluster.trace() if row.event == "send" and row.slot}
    assert sizes == {64 + 12 + 4 * 2 * cluster.trainer.width}  # a walk's pass is 12 bytes
    states = [slot for node in cluster.nodes for _, slot in node.models.interpreter.states]
    assert {"hop/1", "walk/1"} & set(states)


@pytest.mark.parametrize(
    "message",
    [
        Message("answer", round=99, term=3),  # to an exchange that nobody began
        Message("model"),  # a kind that is not declared
        Message("closed"),  # a kind with which no model comes
        Message("offer", note=b"?"),
    ],
    ids=lambda message: message.kind,
)
def test_a_message_from_a_bad_neighbour_overwrites_no_slot(message: Message, tmp_path: Path) -> None:
    graph, trainer = graphs.complete(3), SlowTrainer(3)
    around = NetworkView(0, 3, (2,), (2,))  # node 1 has a link to it, but is a stranger to the machine
    setup = NodeSetup(
        AsyncGossip(), around, Seed(0), Stop(iterations=1), trainer.initial(), endpoints(graph)[0], tmp_path
    )
    node, nan = Node(setup, trainer), np.full(trainer.width, np.nan, np.float32)
    with node.link:
        node.models.interpreter.slots[0]["model"] = trainer.initial()
        hello = encode_hello(Hello(node.neighbours.facts, met=True))
        node.inbox.arrived(Delivery(Parcel(1, 0, Message("hello", note=hello)), None, Stamp(1, 1)))
        node.state.begun, before = True, dict(node.models.interpreter.slots[0])
        node.inbox.arrived(Delivery(Parcel(1, 0, message, nan.nbytes), nan.view(np.uint8), Stamp(1, 1)))
        after = node.models.interpreter.slots[0]
        assert node.link.traffic.dropped.total() == 1
        assert all(after[slot] is model for slot, model in before.items())
        assert not any(bool(model.isnan().any()) for model in after.values())


def test_a_node_that_leaves_hands_its_walk_on(tmp_path: Path) -> None:
    with running(MultiWalk(walks=1, aggregator=1), graphs.complete(3), tmp_path, Stop(time=60)) as cluster:
        end = time.monotonic() + SECONDS
        while 1 not in cluster.nodes[0].status()["walks"] and time.monotonic() < end:
            time.sleep(0.001)
        cluster.nodes[0].leave()
        cluster.threads[0].join(SECONDS)
        assert not cluster.nodes[0].link.waiting()
    trace = cluster.trace()
    left = next(k for k, row in enumerate(trace) if row.event == "handed_on" and row.node == 0)
    sent = next(row for row in trace[left:] if row.event == "send" and row.node == 0)
    assert [row.node for row in trace[left:] if row.event == "receive" and row.number == sent[7]] == [sent[4]]


def test_gossip_comes_back_from_its_checkpoint(tmp_path: Path) -> None:
    with running(AsyncGossip(), graphs.complete(3), tmp_path, Stop(iterations=30)) as first:
        first.wait()
    kept = first.nodes[1].models.interpreter.read(1, "model")
    assert finished_before(tmp_path / "1", Stop(iterations=30))  # as it is, it would have nothing to do
    assert not finished_before(tmp_path / "1", Stop(iterations=60))  # there is more to do now
    with running(
        AsyncGossip(), graphs.complete(3), tmp_path, Stop(iterations=60), rejoin=True, wait_for_neighbours=5
    ) as again:
        again.wait()
    assert max(node.progress.tally.iterations for node in again.nodes) >= 60  # one that hears of the end may know less
    assert not torch.equal(again.nodes[1].models.interpreter.read(1, "model"), kept)
    assert first.nodes[1].link.incarnation != again.nodes[1].link.incarnation


def test_what_only_a_simulator_can_do_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(UnavailableError, match="simulator only"),
        running(AsyncGossip(mixing="matrix"), graphs.cycle(3), tmp_path, Stop(iterations=1)),
    ):
        pass


def test_a_run_ends_when_the_loss_is_low_enough(tmp_path: Path) -> None:
    target = 2.0 + float(trained_loss(AsyncGossip(), tmp_path / "before"))
    with running(AsyncGossip(), graphs.complete(3), tmp_path, Stop(time=60.0, target_loss=target)) as cluster:
        cluster.wait()
    tallies = [node.progress.tally for node in cluster.nodes]
    assert all(tally.own.over for tally in tallies)
    assert cluster.trace()[-1][0] < 30.0  # time would have ended it at 60: the target did, whatever was measured since


def trained_loss(protocol: AsyncGossip, folder: Path) -> float:
    with running(protocol, graphs.complete(3), folder, Stop(iterations=200)) as cluster:
        cluster.wait()
    model = cluster.nodes[0].models.interpreter.read(0, "model")
    return float(cluster.trainer.evaluate(model[None])[0][0])


def test_one_that_comes_back_knows_how_long_the_run_has_lasted(tmp_path: Path) -> None:
    with running(AsyncGossip(), graphs.complete(3), tmp_path, Stop(time=600.0)) as cluster:
        end = time.monotonic() + SECONDS
        while cluster.nodes[0].status()["seconds"] < 1.5 and time.monotonic() < end:
            time.sleep(0.05)
        cluster.nodes[1].leave()
        cluster.threads[1].join(SECONDS)
        (tmp_path / "1" / "checkpoint.safetensors").unlink()  # not even that is left
        back = Node(replace(cluster.setups[1], rejoin=True), cluster.trainer)
        cluster.nodes[1], cluster.threads[1] = back, threading.Thread(target=back.run, daemon=True)
        cluster.threads[1].start()
        while back.status()["seconds"] < 1.5 and time.monotonic() < end:
            time.sleep(0.05)
        assert back.status()["seconds"] > back.state.clock.elapsed + 1.0
