"""A small cluster in this process: every node in a thread, on free ports of loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.quadratic_trainer import QuadraticTrainer
from tests.support.replay import Replay
from walktalk.graphs import Graph
from walktalk.protocols import Protocol, Surroundings
from walktalk.records import TraceRow
from walktalk.runtimes.meaning import Stop
from walktalk.runtimes.peers.node import Node
from walktalk.runtimes.peers.node_state import NodeSetup
from walktalk.runtimes.peers.session import Endpoint, Tuning
from walktalk.runtimes.peers.traces import merge, read_diary
from walktalk.runtimes.peers.unused_ports import free_ports
from walktalk.seeds import Seed

SECONDS = 60  # a run that takes so long hangs


class SlowTrainer(QuadraticTrainer):
    """Takes a moment for each training, as real ones do."""

    seconds = 0.01

    def train(self, *args: Any, **kwargs: Any) -> Any:
        time.sleep(self.seconds)
        return super().train(*args, **kwargs)


class Killed(BaseException):
    """What ends a node's loop without a farewell, when a test puts it there."""


def quietly(run: Callable[[], None]) -> None:
    """Run a node that may be killed: its death is no error."""
    with suppress(Killed):
        run()


@dataclass
class Cluster:
    """Nodes, their threads, and where they write."""

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
        return merge(read_diary(self.folder / str(v)) for v in range(len(self.nodes)))

    def replay(self) -> Replay:
        trainer = self.trainer
        centres = trainer.centres[:-1]
        initial = trainer.initial().double().numpy()
        return Replay(initial, trainer.curvature, centres, trainer.steps, np.eye(len(centres))).play(self.trace())


def endpoints(graph: Graph, tuning: Tuning | None = None) -> list[Endpoint]:
    ports = free_ports(graph.nodes)
    made = []
    for v in range(graph.nodes):
        neighbours = graph.neighbours(v)
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
    """All nodes of a graph, started."""
    trainer = trainer or SlowTrainer(graph.nodes, momentum=momentum)
    setups = []
    for v, endpoint in enumerate(endpoints(graph)):
        neighbours = graph.neighbours(v)
        around = Surroundings(v, graph.nodes, neighbours, tuple(int(graph.degrees[u]) for u in neighbours))
        setups.append(NodeSetup(protocol, around, Seed(0), stop, trainer.initial(), endpoint, folder / str(v)))
    setups = [replace(setup, **changes) for setup in setups]
    nodes = [Node(setup, trainer) for setup in setups]
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
