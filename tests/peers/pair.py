"""Links for tests: nodes a, b, c, … in this process, on free ports of loopback."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from walktalk.runtimes.peers.identity.certificates import Credentials
from walktalk.runtimes.peers.operations.cluster import free_ports
from walktalk.runtimes.peers.wire.link import Link, Listener
from walktalk.runtimes.peers.wire.messages import Delivery, Limits, Parcel
from walktalk.runtimes.peers.wire.session import Endpoint, Tuning

WIDTH = 300_000  # three chunks
SECONDS = 90  # far longer than anything takes here, on a busy machine too; a test that waits so long fails


@dataclass
class Node:
    """A link and what it reported."""

    arrived: queue.Queue[Delivery] = field(default_factory=queue.Queue)
    taken: queue.Queue[Parcel] = field(default_factory=queue.Queue)
    peers: queue.Queue[tuple[int, bool]] = field(default_factory=queue.Queue)
    link: Link = field(init=False)

    def open(self, endpoint: Endpoint, width: int = WIDTH) -> Link:
        listener = Listener(self.arrived.put, self.taken.put, lambda peer, alive: self.peers.put((peer, alive)))
        self.link = Link(endpoint, Limits(dict.fromkeys(("walk", "round"), frozenset((4 * width,)))), listener)
        return self.link


def free_port() -> int:
    """Not one that a connection of another test could get meanwhile."""
    return free_ports(1)[0]


def endpoints(
    ports: tuple[int, int], files: tuple[Credentials | None, Credentials | None] = (None, None)
) -> tuple[Endpoint, Endpoint]:
    """Two neighbours: a connects to b."""
    here = [f"127.0.0.1:{port}" for port in ports]
    quick = Tuning(lease=3.0)
    return (
        Endpoint("test", "a", 0, here[0], {"b": 1}, (here[1],), files[0], quick),
        Endpoint("test", "b", 1, here[1], {"a": 0}, (), files[1], quick),
    )


@contextmanager
def two_nodes(files: tuple[Credentials | None, Credentials | None] = (None, None)) -> Iterator[tuple[Node, Node]]:
    """Two links that have not met yet."""
    nodes = Node(), Node()
    with ExitStack() as stack:
        for node, endpoint in zip(nodes, endpoints((free_port(), free_port()), files), strict=True):
            stack.enter_context(node.open(endpoint)).start()
        yield nodes


def meet(*nodes: Node) -> None:
    """Wait until each has seen its neighbour."""
    for node in nodes:
        assert node.peers.get(timeout=SECONDS)[1]


def folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
