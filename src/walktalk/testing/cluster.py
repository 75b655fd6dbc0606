"""A small cluster in this process: every node in a thread, on free ports of loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import Protocol
from walktalk.records import TraceRow
from walktalk.runtimes.peers import Endpoint, Node, NodeSetup, Tuning, free_ports, merge, read_event_log
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import all_network_views
from walktalk.testing.node_faults import SwitchedFaults
from walktalk.testing.quadratic import Floats, QuadraticTrainer, SlowTrainer
from walktalk.testing.replay import Replay

SECONDS = 60  # a run that takes so long hangs


class Killed(BaseException):
    """What ends a node's loop without a farewell, when a test puts it there."""


def quietly(run: Callable[[], None]) -> None:
    """Run a node that may be killed: its death is no error."""
    with suppress(Killed):
        run()


@dataclass
class Cluster:
    """The nodes of a small cluster in this process, with their threads and folders."""

    nodes: list[Node]
    threads: list[threading.Thread]
    trainer: QuadraticTrainer
    folder: Path
    setups: list[NodeSetup]

    def wait(self) -> None:
        for thread in self.threads:
            thread.join(SECONDS)
            assert not thread.is_alive(), f"{thread.name} hangs"

    def trace(self) -> list[TraceRow]:
        return merge(read_event_log(self.folder / str(v)) for v in range(len(self.nodes)))

    def replay(self) -> Replay:
        trainer = self.trainer
        centres = trainer.centres[:-1]
        initial = trainer.initial().double().numpy()
        return Replay(initial, trainer.curvature, centres, trainer.steps, np.eye(len(centres))).play(self.trace())


def endpoints(graph: Graph, tuning: Tuning | None = None) -> list[Endpoint]:
    ports = free_ports(graph.nodes)
    made = []
    for v in range(graph.nodes):
        neighbours = graph.contacts(v)
        made.append(
            Endpoint(
                "test",
                f"n{v}",
                v,
                f"127.0.0.1:{ports[v]}",
                {f"n{u}": u for u in neighbours},
                tuple(f"127.0.0.1:{ports[u]}" for u in neighbours if u > v),
                None,
                tuning or Tuning(lease=3.0),
            )
        )
    return made


def faulty_node(setup: NodeSetup, trainer: QuadraticTrainer) -> Node:
    """A node with faults that files in its folder switch on."""
    node = Node(setup, trainer)
    SwitchedFaults(node)
    return node


def _thread(node: Node, number: int) -> threading.Thread:
    return threading.Thread(target=quietly, args=(node.run,), name=f"node {number}", daemon=True)


@contextmanager
def running(
    protocol: Protocol,
    graph: Graph,
    folder: Path,
    stop: Stop,
    momentum: float = 0.0,
    trainer: QuadraticTrainer | None = None,
    **changes: Any,
) -> Iterator[Cluster]:
    """Starts all nodes of a graph, and stops them in the end."""
    trainer = trainer or SlowTrainer(graph.nodes, momentum=momentum)
    network_view = all_network_views(graph)
    setups = []
    for v, endpoint in enumerate(endpoints(graph)):
        setups.append(NodeSetup(protocol, network_view[v], Seed(0), stop, trainer.initial(), endpoint, folder / str(v)))
    setups = [replace(setup, **changes) for setup in setups]
    nodes = [faulty_node(setup, trainer) for setup in setups]
    threads = [_thread(node, v) for v, node in enumerate(nodes)]
    cluster = Cluster(nodes, threads, trainer, folder, setups)
    for thread in threads:
        thread.start()
    try:
        yield cluster
    finally:
        for node in nodes:
            node.leave()
        cluster.wait()


def kill_and_restart(cluster: Cluster, killed: list[int], at: float, seconds: float, with_walks: int | None) -> None:
    """Let nodes die in the middle of whatever they do, and start them again from their checkpoints after a while."""
    end = time.monotonic() + SECONDS
    while any(cluster.nodes[v].status()["seconds"] < at or not cluster.nodes[v].state.begun for v in killed):
        assert time.monotonic() < end, "it does not begin"
        time.sleep(0.01)

    def die(node: Node) -> None:
        if with_walks not in (None, len(node.training.queue.walks)):
            threading.Timer(0.001, node.events.put, (partial(die, node),)).start()
            return
        raise Killed

    for node in [cluster.nodes[v] for v in killed]:
        node.events.put(partial(die, node))
    for v in killed:
        cluster.threads[v].join(SECONDS)
    time.sleep(seconds)
    for v in killed:
        back = faulty_node(replace(cluster.setups[v], rejoin=True), cluster.trainer)
        thread = threading.Thread(target=quietly, args=(back.run,), name=f"node {v}", daemon=True)
        cluster.nodes[v], cluster.threads[v] = back, thread
        thread.start()


def last_output(cluster: Cluster) -> Floats:
    """The aggregate of the highest term, or the mean of what nodes recorded last."""
    held = {v: node.models.interpreter for v, node in enumerate(cluster.nodes)}
    terms = {v: what.aggregate_term for v, what in held.items() if what.aggregate is not None}
    if terms:
        aggregate = held[max(terms, key=lambda v: (terms[v], v))].aggregate
        assert aggregate is not None
        return aggregate.double().numpy()
    last = {row.walk: row.node for row in cluster.trace() if row.event == "record"}
    members = [held[v].members.get(key) for key, v in last.items()]
    models = [model.double().numpy() for model in members if model is not None]
    return np.asarray(np.mean(models, axis=0) if models else [np.nan])
