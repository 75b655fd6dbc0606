"""A cluster in this process that nodes join and leave for good: each in a thread, over loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from walktalk.core.seeds import Seed
from walktalk.graphs import Graph
from walktalk.protocols import NetworkView, Protocol
from walktalk.records import TraceRow
from walktalk.runtimes.peers import (
    Cluster,
    JoinRequest,
    Node,
    NodeSetup,
    Place,
    Roster,
    ask_to_join,
    facts_of,
    free_ports,
    make_certificates,
    make_cluster,
    merge,
    network_view,
    read_event_log,
)
from walktalk.runtimes.semantics import Stop
from walktalk.runtimes.simulator import all_network_views
from walktalk.testing.quadratic import SlowTrainer

SECONDS = 60.0  # what has not happened then, will not
LONG = Stop(time=600.0)


@dataclass
class Crowd:
    """Nodes in this process that others join and leave, and the file that they are of."""

    cluster: Cluster
    graph: Graph
    protocol: Protocol
    trainer: SlowTrainer
    nodes: dict[str, Node]
    threads: dict[str, threading.Thread]

    def setup(self, name: str, roster: Roster, around: NetworkView, cluster: Cluster) -> NodeSetup:
        """What a node of that name is set up with."""
        around = network_view(around, roster, name)
        endpoint = cluster.endpoint(name, self.graph, roster)
        return NodeSetup(
            self.protocol, around, Seed(0), LONG, self.trainer.initial(), endpoint, cluster.folder / name,
            roster=roster, dials=lambda other: cluster.dialled(name, other, roster), part=0, wait_for_neighbours=10.0,
        )  # fmt: skip

    def start(self, name: str, setup: NodeSetup) -> Node:
        """Start a node in a thread of its own."""
        node = Node(setup, self.trainer)
        self.nodes[name] = node
        self.threads[name] = threading.Thread(target=node.run, name=name, daemon=True)
        self.threads[name].start()
        return node

    def knocks(self, name: str, contact: str = "n0", certificates: Path | None = None, **study: object) -> Node:
        """One that was not in the file asks a node to let it join, and does."""
        cluster = self.cluster.model_copy(update={"certificates": certificates or self.cluster.certificates})
        roster, where = cluster.roster(self.graph), {"address": f"127.0.0.1:{free_ports(1)[0]}"}
        place = Place.model_validate({**where, "reachable": not cluster.relay})
        facts = facts_of({"algorithm": self.protocol.resilient_form(), **study}, self.trainer.initial())
        needed = tuple(f"n{v}" for v in self.protocol.meets_newcomers)
        ask_to_join(cluster, name, place, JoinRequest(contact, needed), facts, roster)
        joined = cluster.with_joined(roster.entries.values())
        joined = joined.model_copy(update={"nodes": {**joined.nodes, name: place}})
        around = NetworkView(roster.number(name), self.graph.nodes, (), ())
        return self.start(name, replace(self.setup(name, roster, around, joined), joins=True))

    def trace(self) -> list[TraceRow]:
        """What all of them have written down, in order."""
        return merge(read_event_log(self.cluster.folder / name) for name in self.nodes)


@contextmanager
def crowd(folder: Path, protocol: Protocol, graph: Graph, certified: bool = False, relay: str = "") -> Iterator[Crowd]:
    """Starts all nodes of a graph, waits until they train, and stops them in the end.

    Args:
        folder: where they keep their records.
        protocol: what they run.
        graph: of the nodes that are there at first.
        certified: whether each has a certificate.
        relay: where they meet, if they cannot be reached otherwise.
    """
    names, where = [f"n{v}" for v in range(graph.nodes)], {"reachable": not relay}
    nodes = {
        n: {"address": f"127.0.0.1:{port}", **where} for n, port in zip(names, free_ports(len(names)), strict=True)
    }
    content = {"name": "test", "folder": str(folder / "records"), "lease": 3.0, "relay": relay, "nodes": nodes}
    cluster = make_cluster(content)
    if certified:
        make_certificates(folder / "certs", {name: [] for name in (*names, "newcomer")})
        cluster = cluster.model_copy(update={"certificates": folder / "certs"})
    made = Crowd(cluster, graph, protocol, SlowTrainer(1), {}, {})
    for name, around in zip(names, all_network_views(graph), strict=True):
        made.start(name, made.setup(name, cluster.roster(graph), around, cluster))
    try:
        wait_for(lambda: all(done(node) > 3 for node in made.nodes.values()))
        yield made
    finally:
        for node in made.nodes.values():
            node.leave()
        for thread in made.threads.values():
            thread.join(SECONDS)


def done(node: Node) -> int:
    """How many trainings a node has ended."""
    return node.progress.tally.own.iterations


def wait_for(happens: Callable[[], bool], what: str = "it") -> None:
    """Wait until something happens; `AssertionError` where it does not."""
    end = time.monotonic() + SECONDS
    while not happens():
        assert time.monotonic() < end, f"{what} does not happen"
        time.sleep(0.02)
