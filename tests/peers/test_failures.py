"""Real nodes that cannot hear each other for a while: the others elect, go on, and agree again when it is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from walktalk import graphs
from walktalk.protocols import AsyncGossip, MultiWalk
from walktalk.runtimes.peers import Ledger, ReplaySetup, replay
from walktalk.runtimes.semantics import Evaluate, Stop
from walktalk.testing.cluster import BLOCKED, SECONDS, LocalCluster, running

HEARTBEAT = 0.2


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.05)


def cut_off(cluster: LocalCluster, node: int) -> None:
    everyone = range(len(cluster.nodes))
    for v in everyone:
        others = [u for u in everyone if u != v] if v == node else [node]
        (cluster.folder / str(v) / BLOCKED).write_text(" ".join(map(str, others)))


def reconnect(cluster: LocalCluster) -> None:
    for v in range(len(cluster.nodes)):
        (cluster.folder / str(v) / BLOCKED).unlink()


def leaders(cluster: LocalCluster) -> set[int]:
    return {v for v, node in enumerate(cluster.nodes) if node.runner.machine.members.leads}


def test_the_others_elect_an_aggregator_and_the_old_one_steps_down_when_it_hears_of_it(tmp_path: Path) -> None:
    protocol = MultiWalk(walks=2, heartbeat=HEARTBEAT)
    with running(protocol, graphs.complete(4), tmp_path, Stop(time=600.0)) as cluster:
        wait_for(lambda: cluster.nodes[0].progress.tally.iterations > 20)
        assert leaders(cluster) == {0}
        cut_off(cluster, 0)
        wait_for(lambda: 0 in leaders(cluster) and len(leaders(cluster)) == 2)  # two halves, two aggregators
        (new,) = leaders(cluster) - {0}  # whose links were fastest, of three that have as many neighbours
        wait_for(lambda: cluster.nodes[new].models.interpreter.output.aggregate is not None)
        reconnect(cluster)
        wait_for(lambda: leaders(cluster) == {new})
        wait_for(lambda: len({node.runner.machine.members.claim for node in cluster.nodes}) == 1)
    events = [row.event for row in cluster.trace()]
    assert "elected" in events
    assert "stepped_down" in events
    setup = ReplaySetup(4, cluster.trainer.initial(), Evaluate(every=1000))
    replayed = replay(cluster.trace(), setup, cluster.trainer)  # a run with failures can be recomputed too
    aggregate = cluster.nodes[new].models.interpreter.output.aggregate
    assert aggregate is not None
    np.testing.assert_allclose(replayed.output.numpy(), aggregate.numpy(), rtol=1e-4, atol=1e-4)


def is_open(machine) -> bool:
    """Whether an exchange still waits for an answer that did not come in time."""
    return any(exchange.tries > 1 for exchange in list(machine.exchanges.begun.values()))


def test_gossip_goes_on_without_one_that_is_cut_off_and_takes_it_in_again(tmp_path: Path) -> None:
    with running(AsyncGossip(patience=0.5), graphs.complete(3), tmp_path, Stop(time=600.0)) as cluster:
        wait_for(lambda: all(node.progress.tally.own.iterations > 5 for node in cluster.nodes))
        cut_off(cluster, 2)
        wait_for(lambda: any(is_open(node.runner.machine) for node in cluster.nodes))
        before = [node.progress.tally.own.iterations for node in cluster.nodes]
        wait_for(
            lambda: all(n.progress.tally.own.iterations > b + 20 for n, b in zip(cluster.nodes, before, strict=True))
        )
        reconnect(cluster)
        wait_for(lambda: not any(is_open(node.runner.machine) for node in cluster.nodes))
    assert "interrupted" in [row.event for row in cluster.trace()]


def test_a_stop_and_start_of_all_goes_on_within_seconds_with_its_walks(tmp_path: Path) -> None:
    """Walks were forgotten: nothing was trained until the guard gave them up, for 18 heartbeats a node."""
    protocol, graph = MultiWalk(walks=2), graphs.complete(4)
    with running(protocol, graph, tmp_path, Stop(time=600.0)) as cluster:
        wait_for(lambda: cluster.nodes[0].progress.tally.iterations > 20)
    done = sum(row.event == "trained" for row in cluster.trace())
    began = time.monotonic()
    with running(protocol, graph, tmp_path, Stop(time=600.0), rejoin=True) as again:
        wait_for(lambda: again.nodes[0].progress.tally.iterations > done + 20)
        took = time.monotonic() - began
        assert {node.status()["state"] for node in again.nodes} <= {"training", "waiting"}
        wait_for(lambda: leaders(again) == {0})
    assert took < 45.0  # a few, and a machine may be busy; it was more than 60
    trace = again.trace()
    assert not [row for row in trace if row.event in ("restarted", "elected")]
    assert {row.walk for row in trace[-200:] if row.event == "trained"} == {1, 2}
    assert Ledger(protocol, 4, sum(row.event == "train" for row in trace)).play(trace).sound
